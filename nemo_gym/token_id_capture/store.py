"""Captured tokens in files, a few for each rollout, shared by the processes that write and read them.

Entries are only appended; the state file appears when something happens to the rollout as a whole: it is found
incomplete, frozen, or retired. Which call ids are on file is remembered by each store and read on from where it was.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import OrderedDict
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from nemo_gym.token_id_capture.errors import ConflictingEntryError, FrozenRolloutError
from nemo_gym.token_id_capture.files import (
    append_line,
    in_file_thread,
    locked,
    read_lines,
    replace_file,
    require_rollout_id,
    sync_folder,
)
from nemo_gym.token_id_capture.protocols import TokenCaptureSnapshot
from nemo_gym.token_id_capture.records import TokenEntry

_REMEMBERED_ROLLOUTS = 65_536


@dataclass
class _Index:
    """What one store has seen of a rollout's file: up to where, and the digest of each call's line."""

    size: int = 0
    digests: dict[str, str] = field(default_factory=dict)


class TokenCaptureStore:
    """Sink and source of captured calls in the folder `root`."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._root.mkdir(parents=True, exist_ok=True)
        self._indexes: OrderedDict[str, _Index] = OrderedDict()
        self._indexes_lock = Lock()

    @property
    def root(self) -> Path:
        return self._root

    def path_for(self, rollout_id: str) -> Path:
        return self._path(rollout_id, "jsonl")

    def incomplete_path_for(self, rollout_id: str) -> Path:
        return self._path(rollout_id, "incomplete")

    def intents_path_for(self, rollout_id: str) -> Path:
        return self._path(rollout_id, "intents")

    def state_path_for(self, rollout_id: str) -> Path:
        return self._path(rollout_id, "state.json")

    def lock_path_for(self, rollout_id: str) -> Path:
        return self._path(rollout_id, "lock")

    def _path(self, rollout_id: str, ending: str) -> Path:
        return self._root / f"{require_rollout_id(rollout_id)}.tokens.{ending}"

    # --- writing ----------------------------------------------------------------------------------------------------

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        """Note that a call is about to be made, so that one that never comes back is missed.

        Raises FrozenRolloutError when the rollout has been handed over.
        """
        await in_file_thread(self._begin_call, rollout_id, model_call_id)

    def _begin_call(self, rollout_id: str, model_call_id: str) -> None:
        with self._locked(rollout_id):
            self._require_open(rollout_id)
            append_line(self.intents_path_for(rollout_id), json.dumps(model_call_id).encode(), durable=False)

    async def put(self, entry: TokenEntry) -> None:
        """Bring an entry to the disk; the same again is no change.

        Raises ConflictingEntryError for another entry of the same call, and marks the rollout incomplete;
        FrozenRolloutError when the rollout has been handed over.
        """
        await in_file_thread(self.append, entry)

    def append(self, entry: TokenEntry) -> None:
        """`put`, in this thread."""
        line = _entry_line(entry)
        digest = self._entry_digest(line)
        rollout_id = entry.rollout_id
        with self._locked(rollout_id):
            index = self._synced_index(rollout_id)
            known = index.digests.get(entry.model_call_id)
            if known == digest:
                return
            self._require_open(rollout_id)
            if known is not None:
                self._mark(rollout_id)
                raise ConflictingEntryError(
                    f"Rollout {rollout_id} has another record of model call {entry.model_call_id}: both can't be true."
                )
            offset = append_line(self.path_for(rollout_id), line)
            if offset == index.size:
                index.size = offset + len(line) + 1
                index.digests[entry.model_call_id] = digest

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        """Note that tokens of the rollout are missing; of a frozen one, as a new version of it."""
        await in_file_thread(self._mark_incomplete, rollout_id, model_call_id)

    def _mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        with self._locked(rollout_id):
            self._mark(rollout_id)

    def _mark(self, rollout_id: str) -> None:
        state = self._read_state(rollout_id)
        if not self.incomplete_path_for(rollout_id).exists() and not state.get("retired"):
            self.incomplete_path_for(rollout_id).touch()
            sync_folder(self._root)
        if state.get("frozen"):
            self._write_state(rollout_id, {**state, "incomplete": True, "version": state["version"] + 1})

    def is_incomplete(self, rollout_id: str) -> bool:
        """Whether tokens of the rollout are known to be missing."""
        return self.incomplete_path_for(rollout_id).exists() or bool(self._read_state(rollout_id).get("incomplete"))

    # --- handing over -----------------------------------------------------------------------------------------------

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """Close the rollout and return what was captured; the same snapshot each time.

        A call that was begun and left no entry makes it incomplete. Raises FrozenRolloutError when it is retired.
        """
        return await in_file_thread(self.freeze_now, rollout_id)

    def freeze_now(self, rollout_id: str) -> TokenCaptureSnapshot:
        """`freeze`, in this thread."""
        with self._locked(rollout_id):
            state = self._read_state(rollout_id)
            if state.get("retired"):
                raise FrozenRolloutError(f"Rollout {rollout_id} was retired: its tokens were handed over and dropped.")
            entries = tuple(self._read_entries_unlocked(rollout_id))
            if not state.get("frozen"):
                state = self._frozen_state(rollout_id, entries)
                self._write_state(rollout_id, state)
            return TokenCaptureSnapshot(
                rollout_id, entries, state["incomplete"], state["snapshot_id"], state["version"]
            )

    def _frozen_state(self, rollout_id: str, entries: tuple[TokenEntry, ...]) -> dict[str, Any]:
        index = self._synced_index(rollout_id)
        missing = self._dangling_intents(rollout_id, entries)
        return {
            "frozen": True,
            "retired": False,
            "incomplete": bool(missing) or self.incomplete_path_for(rollout_id).exists(),
            "snapshot_id": uuid.uuid4().hex,
            "version": 1,
            "entry_digests": index.digests,
            "indexed_size": index.size,
        }

    def _dangling_intents(self, rollout_id: str, entries: tuple[TokenEntry, ...]) -> set[str]:
        begun = {json.loads(line) for _, line in read_lines(self.intents_path_for(rollout_id))}
        return begun - {entry.model_call_id for entry in entries}

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Delete a frozen rollout that is still in this very state; whether it was. A tombstone stays."""
        return await in_file_thread(self._drop, rollout_id, snapshot_id, version)

    def _drop(self, rollout_id: str, snapshot_id: str, version: int) -> bool:
        with self._locked(rollout_id):
            state = self._read_state(rollout_id)
            if (state.get("snapshot_id"), state.get("version")) != (snapshot_id, version):
                return False
            if not state["retired"]:
                tombstone = {**state, "retired": True, "entry_digests": {}, "indexed_size": 0}
                self._write_state(rollout_id, tombstone)
                self._unlink(rollout_id, self.path_for, self.intents_path_for, self.incomplete_path_for)
            return True

    async def close(self) -> None:
        """Nothing stays open between calls."""

    def delete(self, rollout_id: str) -> None:
        """Remove every trace of a rollout, whatever state it is in."""
        with self._locked(rollout_id):
            self._unlink(
                rollout_id, self.path_for, self.intents_path_for, self.incomplete_path_for, self.state_path_for
            )
        self._unlink(rollout_id, self.lock_path_for)

    def sweep_retired(self, older_than_seconds: float) -> int:
        """Remove the tombstones of rollouts that were retired longer ago; returns how many."""
        swept = 0
        for path in self._root.glob("*.tokens.state.json"):
            with suppress(FileNotFoundError):
                rollout_id = path.name.removesuffix(".tokens.state.json")
                is_old = time.time() - path.stat().st_mtime >= older_than_seconds
                if is_old and self._read_state(rollout_id).get("retired"):
                    self.delete(rollout_id)
                    swept += 1
        return swept

    # --- reading ----------------------------------------------------------------------------------------------------

    def read_entries(self, rollout_id: str) -> list[TokenEntry]:
        """The entries on file, in the order in which they came; a torn last line is no entry."""
        with self._locked(rollout_id, shared=True):
            return self._read_entries_unlocked(rollout_id)

    def _read_entries_unlocked(self, rollout_id: str) -> list[TokenEntry]:
        return [TokenEntry.model_validate_json(line) for _, line in read_lines(self.path_for(rollout_id))]

    def _require_open(self, rollout_id: str) -> None:
        state = self._read_state(rollout_id)
        if state.get("frozen"):
            what = "retired" if state.get("retired") else "frozen"
            raise FrozenRolloutError(f"Rollout {rollout_id} is {what}: it takes no more model calls.")

    def _synced_index(self, rollout_id: str) -> _Index:
        with self._indexes_lock:
            index = self._indexes.setdefault(rollout_id, _Index())
            self._indexes.move_to_end(rollout_id)
            if len(self._indexes) > _REMEMBERED_ROLLOUTS:
                self._indexes.popitem(last=False)
        path = self.path_for(rollout_id)
        if index.size > (path.stat().st_size if path.exists() else 0):
            index.size = 0  # deleted by another process, for the rollout to be made again
            index.digests.clear()
        for offset, line in read_lines(path, index.size):
            index.digests[orjson.loads(line)["model_call_id"]] = self._entry_digest(line)
            index.size = offset + len(line) + 1
        return index

    @staticmethod
    def _entry_digest(payload: bytes) -> str:
        return hashlib.sha256(payload).hexdigest()

    def _locked(self, rollout_id: str, *, shared: bool = False) -> AbstractContextManager[None]:
        return locked(self.lock_path_for(rollout_id), shared=shared)

    def _read_state(self, rollout_id: str) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self.state_path_for(rollout_id).read_bytes())
        except FileNotFoundError:
            return {}
        return state

    def _write_state(self, rollout_id: str, state: dict[str, Any]) -> None:
        replace_file(self.state_path_for(rollout_id), json.dumps(state, sort_keys=True).encode())

    def _unlink(self, rollout_id: str, *paths: Any) -> None:
        with self._indexes_lock:
            self._indexes.pop(rollout_id, None)
        for path_for in paths:
            path_for(rollout_id).unlink(missing_ok=True)


def _entry_line(entry: TokenEntry) -> bytes:
    """One JSON line with sorted keys, so that equal entries are equal bytes."""
    return orjson.dumps(entry.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
