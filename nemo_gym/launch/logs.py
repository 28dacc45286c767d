"""Server logs: what a server writes goes to its file; from there it is shown, followed, quoted and kept in bounds."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TextIO

from nemo_gym.launch.errors import LaunchError, RunNotFoundError
from nemo_gym.launch.run_directory import RunInfo

LONGEST_LOG_BYTES = 64 << 20
TAIL_LINES = 20
_TAIL_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 16
_POLL_SECONDS = 0.1


def open_log(path: Path) -> int:
    """A descriptor that appends to a log file, made with its folder where missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise LaunchError(f"The log file {path} can't be written ({error.strerror}): set +nemo_gym_log_dir.") from error


def length(path: Path) -> int:
    """Bytes in a log; 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tail(path: Path, lines: int = TAIL_LINES, *, since: int = 0) -> list[str]:
    """The last lines of a log, of those after its first `since` bytes; empty when there is none."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= end else 0, end - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]


def with_prefix(name: str, line: str) -> str:
    """The line with its server's name before it, once: servers put it there themselves at times."""
    prefix = f"({name}) "
    return line if line.startswith(prefix) else prefix + line


def follow(info: RunInfo, name: str, follow: bool) -> Iterator[str]:
    """A server's log line by line; with `follow`, new lines as they come until the run ends.

    Raises RunNotFoundError for a name the run doesn't have.
    """
    if name not in info.logs:
        close = get_close_matches(name, info.logs, n=1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        raise RunNotFoundError(
            f"The run at port {info.head_port} has no server `{name}`.{hint} It has: {', '.join(info.logs)}."
        )
    return _follow(_Tail(Path(info.logs[name])), lambda: follow and info.is_alive)


def _follow(log: _Tail, goes_on: Callable[[], bool]) -> Iterator[str]:
    while True:
        last_round = not goes_on()
        lines = list(log.new_lines())
        yield from lines
        if last_round and not lines:
            yield from log.rest()
            return
        if not lines:
            time.sleep(_POLL_SECONDS)


@dataclass
class _Tail:
    """A reading position in a file that grows, and now and then starts again at nothing."""

    path: Path
    offset: int = 0
    partial: bytes = b""

    def new_lines(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self.offset:
                    self.offset = 0
                file.seek(self.offset)
                while chunk := file.read(_CHUNK_BYTES):
                    self.offset += len(chunk)
                    *whole, self.partial = (self.partial + chunk).split(b"\n")
                    yield from (line.decode(errors="replace") for line in whole)
        except OSError:
            return

    def skip(self) -> None:
        """Begin at the present end: what is there was written before us."""
        self.offset = length(self.path)

    def rest(self) -> Iterator[str]:
        """A last line without its newline."""
        if self.partial:
            yield self.partial.decode(errors="replace")
            self.partial = b""


def keep_in_bounds(path: Path, longest: int = LONGEST_LOG_BYTES) -> bool:
    """Move an overlong log to `<name>.1`; the writer goes on in the emptied file. A line written meanwhile is lost."""
    try:
        if path.stat().st_size <= longest:
            return False
        shutil.copy(path, path.with_name(path.name + ".1"))  # with its mode
        os.truncate(path, 0)
    except OSError:
        return False
    return True


@dataclass
class LogConsole:
    """Shows the logs of a run as they grow, each line with its server's name, and keeps them in bounds."""

    logs: Mapping[str, Path]
    stream: TextIO | None
    longest: int = LONGEST_LOG_BYTES
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        tails = {name: _Tail(path) for name, path in self.logs.items()}
        for log in tails.values():
            log.skip()
        self._thread = threading.Thread(target=self._run, args=(tails,), name="gym-log-console", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show what is still unread, then end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, tails: dict[str, _Tail]) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self._round(tails)
        self._round(tails)
        for name, log in tails.items():
            self._show(name, log.rest())

    def _round(self, tails: dict[str, _Tail]) -> None:
        for name, log in tails.items():
            self._show(name, log.new_lines())
            keep_in_bounds(log.path, self.longest)

    def _show(self, name: str, lines: Iterator[str]) -> None:
        shown = [with_prefix(name, line) for line in lines]
        if self.stream is None or not shown:
            return
        with contextlib.suppress(OSError, ValueError):  # a closed terminal is no reason to end a run
            self.stream.write("".join(line + "\n" for line in shown))
            self.stream.flush()
