"""The books of a collection: what was tried, what came of it, and where its record is.

`<output>.journal` holds JSON lines. An `attempt` is written before a rollout is dispatched, a `done` when its outcome
is on file, a `retry` for every failure that was tried again in place. A `done` entry carries what a reader needs to
list and find records without opening them: `offset` is where the record begins, in the main file when the rollout was
measured, in the failures file when it failed; `length`, `hash` and `crc` (CRC-32 of the line with its end, quick to
check) say what is there. A record whose `done` is missing was written just before its process died: whoever resumes
adds the entry. Nothing but the collector writes here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias
from zlib import crc32

import orjson

from nemo_gym.results.blocks import lines_of, read_blocks
from nemo_gym.rollouts.coverage import Retried
from nemo_gym.rollouts.errors import LostResultsError, OutputError
from nemo_gym.rollouts.keyset import RolloutKey, RolloutKeys

FORMAT = 1
SYNC_SECONDS = 1.0
DRAINED = "drained"
"""The state of a run whose dispatch budget was spent before every row was started."""

_ENDS_RETRIES = frozenset({"attempt", "done"})
_RUN, _END = b'{"kind":"run"', b'{"kind":"end"'
_TAIL_BYTES = 1 << 16
_READ_BYTES = 1 << 15

Entry: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Literal["measured", "failed", "dropped", "drained"]


@dataclass(frozen=True, slots=True)
class Completion:
    """How one dispatched rollout ended, after so many retries in place; `index` are fields about its record."""

    task: int | None
    repeat: int | None
    attempt: int
    outcome: Outcome
    failure_class: str | None = None
    reward: float | None = None
    seconds: float | None = None
    boundary: str | None = None
    retries: int = 0
    index: Mapping[str, Any] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        """Its fields in the journal: the last three only where they say something."""
        entry: dict[str, Any] = {
            "task": self.task,
            "repeat": self.repeat,
            "attempt": self.attempt,
            "outcome": self.outcome,
            "failure_class": self.failure_class,
            "reward": self.reward,
            "seconds": self.seconds,
        }
        if self.boundary:
            entry["boundary"] = self.boundary
        if self.retries:
            entry["retries"] = self.retries
        entry.update(self.index)
        return entry


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
            raise OutputError(
                f"{self.path} could not be brought to the disk ({error.strerror}). Nothing more is written: when the "
                "disk is well again, run the same command with --resume."
            ) from error
        self._check_that_it_is_still_ours()

    def _check_that_it_is_still_ours(self) -> None:
        """What somebody deletes, replaces or cuts while we write would take records with it, unseen."""
        expected, mine = self.size, os.fstat(self._descriptor)
        there = self.path.stat() if self.path.exists() else None
        is_ours = there is not None and (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
        if not is_ours or mine.st_size < expected:
            what = "cut short" if is_ours else "deleted" if there is None else "replaced"
            raise LostResultsError(
                f"{self.path} was {what} by somebody else while it was written, so the run is ended: put back what is "
                "missing, then run the same command with --resume."
            )

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
        self._broken: OutputError | None = None
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
        self._raise_what_broke()
        if line is None:
            self._note({"kind": "done", **completion.entry(), "offset": None})
            return None
        file = self._output if completion.outcome == "measured" else self._failures
        offset = file.append(line)
        self._note(done_entry(completion, line, offset))
        return offset

    def repeated(self, completion: Completion) -> None:
        """Note a second result of a rollout that is measured already; it is kept nowhere."""
        self._note({"kind": "duplicate", **completion.entry()})

    def repaired(self, entry: Mapping[str, Any]) -> None:
        """Note an outcome whose record an earlier process wrote without living to say so."""
        self._note({**entry, "repaired": True})

    async def synced(self) -> None:
        """Wait until all that was written is on the disk. Raises OutputError when it can't be brought there."""
        await asyncio.to_thread(self._sync)

    @property
    def _files(self) -> tuple[AppendFile, ...]:
        return (self._output, self._failures, self._journal)

    def _note(self, entry: Mapping[str, Any]) -> None:
        self._raise_what_broke()
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
        """What couldn't be brought to the disk once may be lost, though a second try succeed: nothing more is taken."""
        self._raise_what_broke()
        try:
            for file in self._files:
                file.sync()
        except OutputError as error:
            self._broken = error
            raise

    def _raise_what_broke(self) -> None:
        if self._broken is not None:
            raise type(self._broken)(str(self._broken))


def _now() -> float:
    return round(time.time(), 3)


def done_entry(completion: Completion, line: bytes, offset: int) -> dict[str, Any]:
    """The entry of an outcome whose record is on file."""
    entry = {"kind": "done", **completion.entry(), "offset": offset, "length": len(line) + 1}
    entry["hash"] = blake2b(line, digest_size=8).hexdigest()
    entry["crc"] = crc32(b"\n", crc32(line))
    return entry


def read_journal(path: Path, damaged: Callable[[int], None] | None = None) -> Iterator[Entry]:
    """The entries of a journal in order; none without a file. Lines that can't be read are skipped.

    `damaged` is told the number of each of them.
    """
    for entries in journal_blocks(path, damaged):
        yield from entries


def journal_blocks(path: Path, damaged: Callable[[int], None] | None = None) -> Iterator[list[Entry]]:
    """The same in lists of entries that follow one another."""
    first = 1
    with suppress(FileNotFoundError), path.open("rb") as file:
        for text, lines, entries in read_blocks(file, _READ_BYTES):
            yield list(_entries(lines_of(text), first, damaged)) if entries is None else entries
            first += lines


def _entries(lines: list[bytes], first: int, damaged: Callable[[int], None] | None) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=first):
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            entry = None
        if isinstance(entry, dict):
            yield entry
        elif damaged is not None and line.strip():
            damaged(number)


def run_entries(path: Path) -> list[dict[str, Any]]:
    """The entries that begin runs, in order; the others aren't looked at."""
    found: list[dict[str, Any]] = []
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in _lines_of_runs(file):
            with suppress(orjson.JSONDecodeError):
                found.append(orjson.loads(line))
    return found


def _lines_of_runs(file: BinaryIO) -> Iterator[bytes]:
    while lines := file.read(_READ_BYTES):
        lines = b"\n" + lines + file.readline()
        begin = lines.find(b"\n" + _RUN)
        while begin >= 0:
            end = lines.find(b"\n", begin + 1)
            yield lines[begin + 1 : end if end >= 0 else None]
            begin = lines.find(b"\n" + _RUN, begin + 1)


def last_state(path: Path) -> str | None:
    """How the last run that the journal knows ended, None when it doesn't say."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        for line in reversed(file.read().splitlines()):
            if line.startswith(_END):
                with suppress(orjson.JSONDecodeError):
                    return str(orjson.loads(line).get("state"))
    return None


class History:
    """What a journal says about the rollouts of a set, entry by entry."""

    def __init__(self) -> None:
        self.unfinished: dict[RolloutKey, int] = {}
        """Dispatches since the last outcome on file."""
        self.retries: dict[RolloutKey, int] = {}
        """Retries in place of rollouts whose outcome isn't noted."""
        self.measured = RolloutKeys()
        self.failures: dict[RolloutKey, int] = {}
        self.tries: dict[RolloutKey, int] = {}
        """How often a measured rollout was tried, where that is more than once."""
        self.resumed_anyway: list[str] = []
        self.retried = Retried()

    @property
    def cut_off(self) -> int:
        """Rollouts that were sent and have no outcome at all."""
        return sum(key not in self.measured and key not in self.failures for key in self.unfinished)

    def add(self, entries: Iterable[Entry]) -> list[Entry]:
        """Take in entries that follow one another; returns those of measured rollouts."""
        unfinished, retries = self.unfinished, self.retries
        measured: list[Entry] = []
        for entry in entries:
            try:
                kind, task, repeat = entry["kind"], entry["task"], entry["repeat"]
            except KeyError:
                self._note_run(entry)
                continue
            if type(task) is not int or type(repeat) is not int:
                continue
            key = task, repeat
            if kind == "attempt":
                unfinished[key] = unfinished.get(key, 0) + 1
            elif kind == "done":
                outcome = entry.get("outcome")
                if outcome != "dropped":  # that leaves nothing on file
                    unfinished.pop(key, None)
                if outcome == "measured":
                    measured.append(entry)
                elif outcome == "failed":
                    self.failures[key] = self.failures.get(key, 0) + 1
            elif kind == "retry":
                retries[key] = _count(entry.get("retry"))
                continue
            if retries and kind in _ENDS_RETRIES:
                retries.pop(key, None)
        self._measure(measured)
        return measured

    def _note_run(self, entry: Entry) -> None:
        if entry.get("kind") == "run":
            told = entry.get("resumed_anyway")
            self.resumed_anyway += map(str, told if isinstance(told, list) else ())

    def _measure(self, entries: list[Entry]) -> None:
        are_new = self.measured.add_all([(entry["task"], entry["repeat"]) for entry in entries])
        note = self.retried.add
        for entry in compress(entries, are_new):
            reward, attempt, retries = entry.get("reward"), entry.get("attempt"), entry.get("retries")
            tries = 1 + (_count(attempt) if attempt else 0) + (_count(retries) if retries else 0)
            if tries > 1:
                self.tries[entry["task"], entry["repeat"]] = tries
            note(reward if type(reward) is float or type(reward) is int else None, tries=tries)


def _count(value: object) -> int:
    """A number of tries as somebody may have left it."""
    return value if type(value) is int else 0
