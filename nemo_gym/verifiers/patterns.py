"""Regular expressions that come with a task, matched where they can do no harm.

Python's engine can take exponential time and holds the interpreter meanwhile, so such patterns run in processes of
their own, each match bounded in CPU time. What they find is what `re` finds.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from nemo_gym.errors import GymError

SECONDS = 5.0
"""CPU seconds a match may take unless said otherwise: thousands of times what sensible patterns need."""

MOST_CHARACTERS = 100_000
"""Of a pattern: compiling takes memory and time by its length, hundreds of bytes for a character."""

_WORKER = Path(__file__).with_name("pattern_worker.py")
_WORKERS = min(4, os.cpu_count() or 1)


class PatternError(GymError, re.error):
    """A pattern isn't a regular expression, or is longer than MOST_CHARACTERS."""


class PatternTimeoutError(GymError, TimeoutError):
    """Matching a pattern took more CPU time than it may."""


async def find_groups(pattern: str, text: str, *, ignore_case: bool = False, seconds: float | None = None) -> list[Any]:
    """`re.findall(pattern, text)`, where what a pattern with several groups finds are lists of strings.

    Raises PatternError and PatternTimeoutError.
    """
    found: list[list[Any]] = await _run("groups", pattern, [text], ignore_case, seconds)
    return found[0]


async def find_matches(pattern: str, text: str, *, seconds: float | None = None) -> list[str]:
    """The text of every match of `pattern`, whatever its groups. Raises PatternError and PatternTimeoutError."""
    found: list[list[str]] = await _run("matches", pattern, [text], False, seconds)
    return found[0]


async def last_match(pattern: str, text: str, *, seconds: float | None = None) -> list[str | None] | None:
    """The last match, with `^` and `$` at every line and `.` for newlines too: its text, then what each of its groups
    found; None without a match. Raises PatternError and PatternTimeoutError."""
    found: list[list[str | None] | None] = await _run("last", pattern, [text], False, seconds)
    return found[0]


async def matching(pattern: str, texts: list[str], *, seconds: float | None = None) -> list[bool]:
    """For each of `texts` whether `pattern` is found in it. Raises PatternError and PatternTimeoutError; the time is
    for all of them together."""
    found: list[bool] = await _run("search", pattern, texts, False, seconds)
    return found


Work = Literal["groups", "matches", "last", "search"]


async def _run(do: Work, pattern: str, texts: list[str], ignore_case: bool, seconds: float | None) -> Any:
    seconds = SECONDS if seconds is None else seconds
    if len(pattern) > MOST_CHARACTERS:
        raise PatternError(f"{_shortened(pattern)} is too long: a pattern has at most {MOST_CHARACTERS:,} characters")
    job = {"do": do, "pattern": pattern, "texts": texts, "ignore_case": ignore_case, "seconds": seconds}
    answer = await asyncio.get_running_loop().run_in_executor(_threads(), _ask, job)
    if answer is None:
        raise PatternTimeoutError(
            f"the pattern {_shortened(pattern)} took more than {seconds:g} s of CPU; repeats inside repeats cause that"
        )
    if "invalid" in answer:
        raise PatternError(f"{_shortened(pattern)} is no regular expression: {answer['invalid']}")
    return answer["found"]


def _shortened(pattern: str, length: int = 200) -> str:
    return repr(pattern if len(pattern) <= length else pattern[:length] + "…")


class _Worker:
    """A process for one thread, started when first asked and again after it ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a job; None when it took too long."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            if self.end() == -signal.SIGVTALRM:
                return None
            raise RuntimeError("the process that matches patterns was ended from outside")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> int | None:
        """End the process, if any, and say how it ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        with suppress(OSError):  # what was still to be written to a process that is gone
            process.stdin.close()
        with process:
            return process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            # Isolated and without site-packages: it starts in milliseconds and sees nothing of the server's.
            command = [sys.executable, "-I", "-S", "-W", "ignore", str(_WORKER)]
            libraries = {name: value for name, value in os.environ.items() if name.endswith("LIBRARY_PATH")}
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=libraries)
        return self._process


_local = threading.local()
_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()
_executors: dict[int, ThreadPoolExecutor] = {}


def _ask(job: dict[str, Any]) -> dict[str, Any] | None:
    worker: _Worker | None = getattr(_local, "worker", None)
    if worker is None:
        worker = _local.worker = _Worker()
        _workers.add(worker)
    return worker.ask(job)


def _threads() -> ThreadPoolExecutor:
    """This process's threads: those of a process that was forked from another are not its own."""
    pid = os.getpid()
    if pid not in _executors:
        _executors.clear()
        _executors[pid] = ThreadPoolExecutor(_WORKERS, thread_name_prefix="patterns")
    return _executors[pid]


@atexit.register
def _end_workers() -> None:
    for worker in list(_workers):
        worker.end()
