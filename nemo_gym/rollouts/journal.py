"""The books of a collection: what was tried, what came of it, and where its record is.

`<output>.journal` holds JSON lines. An `attempt` is written before a rollout is dispatched, a `done` when its outcome
is on file, a `retry` for every failure that was tried again in place. A `done` entry carries what a reader needs to
list and find records without opening them: `offset` is where the record begins, in the main file when the rollout was
measured, in the failures file when it failed. Nothing but the collector writes here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson

from nemo_gym.rollouts.errors import OutputError
from nemo_gym.rollouts.keyset import RolloutKey

FORMAT = 1
SYNC_SECONDS = 1.0

Outcome: TypeAlias = Literal["measured", "failed", "dropped", "drained"]


@dataclass(frozen=True, slots=True)
class Completion:
    """How one dispatched rollout ended."""

    task: int | None
    repeat: int | None
    attempt: int
    outcome: Outcome
    failure_class: str | None = None
    reward: float | None = None
    seconds: float | None = None


class AppendFile:
    """A file that only grows, by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.size = os.fstat(self._descriptor).st_size

    def append(self, line: bytes) -> int:
        """Write one line with its line end; returns the offset it begins at.

        Raises OutputError when it can't be written whole; the file then ends as it did before.
        """
        offset, rest = self.size, memoryview(line + b"\n")
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, offset)
            raise OutputError(
                f"{self.path} can't be written ({error.strerror}). What was measured before is saved: make room, then "
                "run the same command with --resume."
            ) from error
        self.size = offset + len(line) + 1
        return offset

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise OutputError(f"{self.path} could not be brought to the disk ({error.strerror}).") from error

    def close(self) -> None:
        os.close(self._descriptor)


class Books:
    """Main file, failures file and journal, written together by one process.

    Every line is in the system's hands when a method returns; it is on the disk a second later.
    """

    def __init__(self, output: Path, failures: Path, journal: Path) -> None:
        self._output = AppendFile(output)
        self._failures = AppendFile(failures)
        self._journal = AppendFile(journal)
        self._dirty = False
        self._closing = asyncio.Event()
        self._syncing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Books:
        self._syncing = asyncio.create_task(self._sync_until_closed())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closing.set()
        try:
            if self._syncing is not None:
                await self._syncing
            self._sync()
        except OutputError:
            if kind is None:
                raise
        finally:
            for file in self._files:
                file.close()

    def opened(self, header: Mapping[str, Any]) -> None:
        """Note the start of a run and what it is a run of."""
        self._note({"kind": "run", "format": FORMAT, "at": _now(), **header})

    def closed(self, state: str) -> None:
        """Note the end of a run: done, stopped, or what broke it. Where even that can't be written, so be it."""
        with suppress(OutputError):
            self._note({"kind": "end", "at": _now(), "state": state})

    def attempt(self, task: int | None, repeat: int | None, attempt: int) -> None:
        """Note that a rollout is about to be dispatched."""
        self._note({"kind": "attempt", "task": task, "repeat": repeat, "attempt": attempt, "at": _now()})

    def retry(self, task: int | None, repeat: int | None, number: int, failure: Mapping[str, Any]) -> None:
        """Note a failure that is tried again in place."""
        self._note({"kind": "retry", "task": task, "repeat": repeat, "retry": number, "failure": failure})

    def record(self, completion: Completion, line: bytes | None) -> int | None:
        """Append the record, if there is one, then note the outcome; returns the offset the record begins at."""
        offset = None
        if line is not None:
            file = self._output if completion.outcome == "measured" else self._failures
            offset = file.append(line)
        self._note({"kind": "done", **asdict(completion), "offset": offset})
        return offset

    async def synced(self) -> None:
        """Wait until all that was written is on the disk. Raises OutputError when it can't be brought there."""
        await asyncio.to_thread(self._sync)

    @property
    def _files(self) -> tuple[AppendFile, ...]:
        return (self._output, self._failures, self._journal)

    def _note(self, entry: Mapping[str, Any]) -> None:
        self._journal.append(orjson.dumps(entry))
        self._dirty = True

    async def _sync_until_closed(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), SYNC_SECONDS)
            if self._dirty:
                self._dirty = False
                await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        for file in self._files:
            file.sync()


def _now() -> float:
    return round(time.time(), 3)


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a journal in order; lines that are not whole are skipped, and so is a missing file."""
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            with suppress(orjson.JSONDecodeError):
                yield orjson.loads(line)


def unfinished_attempts(path: Path) -> dict[RolloutKey, int]:
    """Rollouts whose last dispatches have no outcome on file, with how many there were."""
    open_attempts: dict[RolloutKey, int] = {}
    for entry in read_journal(path):
        task, repeat = entry.get("task"), entry.get("repeat")
        if not isinstance(task, int) or not isinstance(repeat, int):
            continue
        key = (task, repeat)
        if entry.get("kind") == "attempt":
            open_attempts[key] = open_attempts.get(key, 0) + 1
        elif entry.get("kind") == "done":
            open_attempts.pop(key, None)
    return open_attempts
