"""Stores that find the call a request continues, and keep the ledger of calls that workers stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock, RLock
from typing import Any

import orjson

from nemo_gym.token_id_capture import ledger
from nemo_gym.token_id_capture.errors import LineageLookupError
from nemo_gym.token_id_capture.files import append_line, in_file_thread, locked, read_lines, require_rollout_id
from nemo_gym.token_id_capture.lineage_index import (
    LineageIndex,
    LineageNode,
)
from nemo_gym.token_id_capture.protocols import CaptureLedgerCommit, LineageResolution
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, cumulative_tokens
from nemo_gym.token_id_capture.staging.records import RolloutManifest
from nemo_gym.token_id_capture.tokens import compute_digest

__all__ = ["CursorReset", "FileLineageStore", "InMemoryLineageStore", "IncrementalLineageStore"]


class CursorReset(Exception):
    """What a cursor pointed into is gone: the rollout has to be read from its beginning."""


class _Followed:
    """One rollout as far as it was read."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.index = LineageIndex()
        self.cursor: Any = None


class _TokenCache:
    """The whole tokens of calls, the least recently used given up first."""

    def __init__(self, max_tokens: int) -> None:
        self._max = max_tokens
        self._held: OrderedDict[tuple[str, str], list[int]] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: tuple[str, str]) -> list[int] | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: tuple[str, str], tokens: list[int]) -> None:
        with self._lock:
            self._total += len(tokens) - len(self._held.pop(key, ()))
            self._held[key] = tokens
            while self._total > self._max and self._held:
                self._total -= len(self._held.popitem(last=False)[1])


class IncrementalLineageStore(ABC):
    """Follows entries that are written elsewhere: reads what is new, and forgets tokens but not how calls are told.

    A backend gives the entries after a cursor, and loads one again by the reference it gave with it. The hooks run in
    worker threads.
    """

    def __init__(self, *, max_cached_rollouts: int = 65_536, max_cached_tokens: int = 8_000_000) -> None:
        self._max_rollouts = max_cached_rollouts
        self._followed: OrderedDict[str, _Followed] = OrderedDict()
        self._followed_lock = Lock()
        self._tokens = _TokenCache(max_cached_tokens)

    @abstractmethod
    def _fetch_new_entries(self, rollout_id: str, cursor: Any) -> tuple[list[tuple[Any, TokenEntry]], Any]:
        """(reference, entry) of what came after `cursor` (None: from the beginning), and the new cursor.

        Raises CursorReset when the cursor is of no use any more.
        """

    @abstractmethod
    def _load_entry(self, rollout_id: str, ref: Any) -> TokenEntry:
        """The entry of a reference."""

    def _load_entries(self, rollout_id: str, refs: list[Any]) -> list[TokenEntry]:
        """The entries of several references, in their order."""
        return [self._load_entry(rollout_id, ref) for ref in refs]

    def _read_locked(self, rollout_id: str) -> AbstractContextManager[Any]:
        """Held while a rollout is read."""
        return nullcontext()

    def is_process_shared(self) -> bool:
        """Whether several processes see the same calls."""
        return True

    async def close(self) -> None:  # noqa: B027 - a backend that holds nothing open needs none
        """Let go of what is open."""

    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        """The call that a request continues, with all its tokens. Raises whatever the backend can't read."""
        return await in_file_thread(self._resolve, rollout_id, request_items)

    def _resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        followed = self._following(rollout_id)
        with followed.lock, self._read_locked(rollout_id):
            self._catch_up(rollout_id, followed)
            parent = followed.index.parent_of(request_items)
            if parent is None:
                return LineageResolution.root()
            if isinstance(parent, str):
                return LineageResolution.unresolved(parent)
            tokens = self._tokens_of(rollout_id, followed.index, parent)
        return LineageResolution(
            ParentResolutionStatus.RESOLVED, parent.model_call_id, parent_tokens=tokens, parent_cum_len=parent.cum_len
        )

    def _following(self, rollout_id: str) -> _Followed:
        with self._followed_lock:
            followed = self._followed.setdefault(rollout_id, _Followed())
            self._followed.move_to_end(rollout_id)
            if len(self._followed) > self._max_rollouts:
                self._followed.popitem(last=False)
            return followed

    def _catch_up(self, rollout_id: str, followed: _Followed) -> None:
        try:
            fresh, followed.cursor = self._fetch_new_entries(rollout_id, followed.cursor)
        except CursorReset:
            followed.index = LineageIndex()
            fresh, followed.cursor = self._fetch_new_entries(rollout_id, None)
        for ref, entry in fresh:
            node = LineageNode.of(entry, ref)
            followed.index.add(node)
            if not entry.prompt_is_delta:
                self._tokens.put((rollout_id, entry.model_call_id), cumulative_tokens(entry))

    def _tokens_of(self, rollout_id: str, index: LineageIndex, node: LineageNode) -> list[int]:
        known = self._tokens.get((rollout_id, node.model_call_id))
        if known is None:
            try:
                path = list(reversed(list(index.path_to_whole(node))))
            except KeyError as error:
                raise LineageLookupError(
                    f"Model call {node.model_call_id} builds on {error}, which is gone."
                ) from error
            known = []
            for entry in self._load_entries(rollout_id, [step.ref for step in path]):
                known = cumulative_tokens(entry, known)
            self._tokens.put((rollout_id, node.model_call_id), known)
        if node.digest and compute_digest(known) != node.digest:
            raise LineageLookupError(f"The tokens of model call {node.model_call_id} are not those that were captured.")
        return known


class FileLineageStore(IncrementalLineageStore):
    """Reads the files that `TokenCaptureStore` writes in `root`, and keeps the ledger beside them."""

    def __init__(
        self, root: str | Path, *, max_cached_rollouts: int = 65_536, max_cached_tokens: int = 8_000_000
    ) -> None:
        super().__init__(max_cached_rollouts=max_cached_rollouts, max_cached_tokens=max_cached_tokens)
        self._root = Path(root)
        self._root.mkdir(parents=True, exist_ok=True)

    def _entries_path(self, rollout_id: str) -> Path:
        return self._root / f"{require_rollout_id(rollout_id)}.tokens.jsonl"

    def _read_locked(self, rollout_id: str) -> AbstractContextManager[Any]:
        return locked(self._root / f"{require_rollout_id(rollout_id)}.tokens.lock", shared=True)

    def _fetch_new_entries(self, rollout_id: str, cursor: Any) -> tuple[list[tuple[Any, TokenEntry]], Any]:
        path, start = self._entries_path(rollout_id), cursor or 0
        size = path.stat().st_size if path.exists() else 0
        if size < start:
            raise CursorReset
        found: list[tuple[Any, TokenEntry]] = []
        for offset, line in read_lines(path, start):
            found.append(((offset, len(line)), TokenEntry.model_validate_json(line)))
            start = offset + len(line) + 1
        return found, start

    def _load_entry(self, rollout_id: str, ref: Any) -> TokenEntry:
        return self._load_entries(rollout_id, [ref])[0]

    def _load_entries(self, rollout_id: str, refs: list[Any]) -> list[TokenEntry]:
        entries = []
        with self._entries_path(rollout_id).open("rb") as file:
            for offset, length in refs:
                file.seek(offset)
                entries.append(TokenEntry.model_validate_json(file.read(length)))
        return entries

    # --- the ledger -------------------------------------------------------------------------------------------------

    def _ledger_path(self, rollout_id: str) -> Path:
        return self._root / f"{require_rollout_id(rollout_id)}.lineage.jsonl"

    def _locked(self, rollout_id: str) -> AbstractContextManager[None]:
        return locked(self._ledger_path(rollout_id).with_suffix(".lock"))

    def _read(self, rollout_id: str) -> list[dict[str, Any]]:
        return [orjson.loads(line) for _, line in read_lines(self._ledger_path(rollout_id))]

    def _append(self, rollout_id: str, record: dict[str, Any], records: list[dict[str, Any]]) -> None:
        if ledger.is_new(record, records):
            append_line(self._ledger_path(rollout_id), orjson.dumps(record, option=orjson.OPT_SORT_KEYS))

    def _resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        if self._ledger_path(rollout_id).exists():
            return self._resolve_row(rollout_id, request_items)
        return super()._resolve(rollout_id, request_items)

    def _resolve_row(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        with self._locked(rollout_id):
            rows = self._read(rollout_id)
        return ledger.resolve_in_rows(rows, request_items)

    async def record(self, commit: CaptureLedgerCommit) -> None:
        """Bring the row of a staged call to the disk. Raises ConflictingEntryError for another row of the same call."""
        await in_file_thread(self._record, commit)

    def _record(self, commit: CaptureLedgerCommit) -> None:
        with self._locked(commit.rollout_id):
            self._append(commit.rollout_id, ledger.call_row(commit), self._read(commit.rollout_id))

    async def record_failure(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Bring to the disk that a call's tokens are lost."""
        await in_file_thread(self._record_failure, rollout_id, model_call_id, reason)

    def _record_failure(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        with self._locked(rollout_id):
            self._append(rollout_id, ledger.failure_row(model_call_id, reason), self._read(rollout_id))

    async def manifest(self, rollout_id: str) -> RolloutManifest:
        """All staged calls of a rollout. Raises InvalidRolloutIdError."""
        return await in_file_thread(self._manifest, rollout_id)

    def _manifest(self, rollout_id: str) -> RolloutManifest:
        with self._locked(rollout_id):
            rows = self._read(rollout_id)
        return ledger.manifest_of(rollout_id, rows)

    async def has_rows(self, rollout_id: str) -> bool:
        """Whether the ledger has anything on a rollout."""
        return await in_file_thread(self._has_rows, rollout_id)

    def _has_rows(self, rollout_id: str) -> bool:
        return next(read_lines(self._ledger_path(rollout_id)), None) is not None


class _Remembered:
    def __init__(self) -> None:
        self.index = LineageIndex()
        self.tokens: dict[str, list[int]] = {}
        self.rows: list[dict[str, Any]] = []

    @property
    def token_count(self) -> int:
        return sum(map(len, self.tokens.values()))


class InMemoryLineageStore:
    """For one server process: what it captured itself, the oldest rollouts given up first."""

    def __init__(self, max_rollouts: int = 512, max_tokens: int = 8_000_000) -> None:
        self._max_rollouts = max_rollouts
        self._max_tokens = max_tokens
        self._rollouts: OrderedDict[str, _Remembered] = OrderedDict()
        self._token_count = 0

    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        """The call that a request continues, with all its tokens, or its row in the ledger."""
        known = self._rollouts.get(rollout_id) or _Remembered()
        if known.rows:
            return ledger.resolve_in_rows(known.rows, request_items)
        parent = known.index.parent_of(request_items)
        if parent is None:
            return LineageResolution.root()
        if isinstance(parent, str):
            return LineageResolution.unresolved(parent)
        return LineageResolution(
            ParentResolutionStatus.RESOLVED,
            parent.model_call_id,
            parent_tokens=known.tokens[parent.model_call_id],
            parent_cum_len=parent.cum_len,
        )

    async def put(self, entry: TokenEntry) -> None:
        """Remember a captured call. Raises LineageLookupError for a delta on a call that isn't remembered."""
        known = self._remembered(entry.rollout_id)
        parent = known.tokens.get(entry.parent_call_id or "")
        if entry.prompt_is_delta and parent is None:
            raise LineageLookupError(f"Model call {entry.model_call_id} builds on one that isn't remembered.")
        if entry.model_call_id in known.tokens:
            return
        tokens = cumulative_tokens(entry, parent or ())
        known.index.add(LineageNode.of(entry))
        known.tokens[entry.model_call_id] = tokens
        self._token_count += len(tokens)
        self._give_up_oldest()

    def _remembered(self, rollout_id: str) -> _Remembered:
        known = self._rollouts.setdefault(rollout_id, _Remembered())
        self._rollouts.move_to_end(rollout_id)
        return known

    def _give_up_oldest(self) -> None:
        while len(self._rollouts) > 1 and (
            len(self._rollouts) > self._max_rollouts or self._token_count > self._max_tokens
        ):
            _, oldest = self._rollouts.popitem(last=False)
            self._token_count -= oldest.token_count

    def is_process_shared(self) -> bool:
        """No other process sees this memory."""
        return False

    async def record(self, commit: CaptureLedgerCommit) -> None:
        """Keep the row of a staged call. Raises ConflictingEntryError for another row of the same call."""
        self._append(commit.rollout_id, ledger.call_row(commit))

    async def record_failure(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Note that a call's tokens are lost."""
        self._append(rollout_id, ledger.failure_row(model_call_id, reason))

    def _append(self, rollout_id: str, row: dict[str, Any]) -> None:
        rows = self._remembered(rollout_id).rows
        if ledger.is_new(row, rows):
            rows.append(row)
        self._give_up_oldest()

    async def manifest(self, rollout_id: str) -> RolloutManifest:
        """All staged calls of a rollout."""
        return ledger.manifest_of(require_rollout_id(rollout_id), self._rows(rollout_id))

    async def has_rows(self, rollout_id: str) -> bool:
        """Whether the ledger has anything on a rollout."""
        return bool(self._rows(rollout_id))

    def _rows(self, rollout_id: str) -> Sequence[dict[str, Any]]:
        known = self._rollouts.get(rollout_id)
        return known.rows if known else ()

    async def close(self) -> None:
        """Forget everything."""
        self._rollouts.clear()
        self._token_count = 0
