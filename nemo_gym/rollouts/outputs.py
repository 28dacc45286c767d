"""The files of one result set: their names, who may write them, and what happens to an older set."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from nemo_gym.rollouts.errors import OutputError

_DERIVED = (
    "_failures.jsonl",
    "_materialized_inputs.jsonl",
    "_aggregate_metrics.json",
    "_coverage.json",
    "_quality_summary.json",
    "_rollout_verdicts.jsonl",
    "_reward_profiling.jsonl",
    "_agent_metrics.json",
    "_repeat_level_metrics.json",
)


@dataclass(frozen=True)
class ResultSet:
    """The files that belong to one `--output`."""

    output: Path

    def _beside(self, suffix: str) -> Path:
        return self.output.with_name(self.output.stem + suffix)

    @property
    def failures(self) -> Path:
        return self._beside("_failures.jsonl")

    @property
    def materialized(self) -> Path:
        return self._beside("_materialized_inputs.jsonl")

    @property
    def aggregate_metrics(self) -> Path:
        return self._beside("_aggregate_metrics.json")

    @property
    def coverage(self) -> Path:
        """The coverage line as data."""
        return self._beside("_coverage.json")

    @property
    def journal(self) -> Path:
        return self.output.with_name(self.output.name + ".journal")

    @property
    def prepared(self) -> Path:
        """Folder of the rows collated for this output."""
        return self.output.with_suffix("") / "preprocessed_datasets"

    @property
    def members(self) -> tuple[Path, ...]:
        """Every file that may belong to the set, the main one first."""
        damaged = (self.damaged_lines_of(path) for path in (self.output, self.failures))
        return (self.output, self.journal, *damaged, *(self._beside(suffix) for suffix in _DERIVED))

    @staticmethod
    def damaged_lines_of(path: Path) -> Path:
        """Where the lines of a file are kept that could not be read."""
        return path.with_name(f"{path.name}.damaged")

    @property
    def has_results(self) -> bool:
        """Whether anything in it would be missed."""
        return any(path.exists() and path.stat().st_size > 0 for path in (self.output, self.failures))

    def check_writable(self) -> None:
        """Make the folder. Raises OutputError, naming the reason, when results can't be written there."""
        folder = self.output.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"The folder {folder} can't be made ({error.strerror}): choose another --output."
            ) from error
        if self.output.is_dir():
            raise OutputError(f"{self.output} is a folder: --output must name a file.")
        if self.output.exists() and not self.output.is_file():
            raise OutputError(f"{self.output} is a device, not a file: choose another --output.")
        unwritable = self.output if self.output.exists() and not os.access(self.output, os.W_OK) else None
        if not os.access(folder, os.W_OK | os.X_OK):
            unwritable = folder
        if unwritable is not None:
            raise OutputError(f"{unwritable} is not writable: choose another --output.")

    def check_apart_from(self, inputs: Iterable[Path]) -> None:
        """Raise OutputError when writing this set would take away a file that rows are read from."""
        for path in inputs:
            if any(member.exists() and member.samefile(path) for member in self.members):
                raise OutputError(f"{path} is the input, and {self.output} would replace it: choose another --output.")

    def delete(self) -> None:
        """Remove every file of the set."""
        for path in self.members:
            path.unlink(missing_ok=True)

    def move_aside(self) -> Path:
        """Give every file of the set the next free number as suffix; returns the main file's new name.

        The main file goes last: a set that was half moved when the process died is still seen, and moved on.
        """
        number = next(n for n in count(1) if not any(_numbered(path, n).exists() for path in self.members))
        for path in reversed(self.members):
            if path.exists():
                path.rename(_numbered(path, number))
        return _numbered(self.output, number)

    def check_free(self) -> None:
        """Raise OutputError when another run is writing the set."""
        with self.locked():
            pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the set for this process. Raises OutputError when another run holds it."""
        self.check_writable()
        lock = self.output.with_name(f".{self.output.name}.lock")
        descriptor = _hold(lock, self.output)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            os.close(descriptor)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _hold(lock: Path, output: Path) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise OutputError(
                f"Another run{f' (process {owner})' if owner else ''} is writing {output}: wait for it, stop it, or "
                "choose another --output."
            ) from error
        if _is_still(lock, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
            return descriptor
        os.close(descriptor)


def _is_still(lock: Path, descriptor: int) -> bool:
    """Whether the path names the file we hold: its last owner may have removed it between our open and our lock."""
    try:
        return os.path.samestat(lock.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def dated_output(results_dir: Path, name: str, now: datetime) -> Path:
    """A file for a run that named none: `results/mcqa-20261130-093000.jsonl`; the first free one."""
    stem = f"{name.replace('/', '_')}-{now:%Y%m%d-%H%M%S}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in count(1))
    return next(path for path in (results_dir / f"{candidate}.jsonl" for candidate in names) if not path.exists())
