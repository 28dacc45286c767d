"""Whether the event loop of a process still turns, kept where others see it though the loop answers nobody.

A number in a file that two of a process write: its loop, once a second, and a thread, whenever it sees the loop at
something else than before. So the number stands still only while one single step of one piece of work goes on: a loop
that is slow because it has much to do gets from one to the next. What holds it is told in a second file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from nemo_gym.config.replacing import write_private
from nemo_gym.config.roots import ROOT_DIR
from nemo_gym.serve.in_flight import Request, request_of

PULSE_SUFFIX, HELD_SUFFIX = ".pulse", ".held"
BEAT_SECONDS = 1.0
TOLD_AFTER_SECONDS = 3.0
_MOMENT = struct.Struct("d")
_NOT_OWN = (str(Path(os.__file__).parent), str(ROOT_DIR))


@dataclass(frozen=True)
class Held:
    """What a loop is at: a request, where that is known, and `at`, the line of code as `file:line`."""

    at: str
    server: str = ""
    path: str = ""
    rollout: str = ""

    @property
    def shown(self) -> str:
        """`by /verify of mcqa, at app.py:12`."""
        by = f"by {self.path} of {self.server}" if self.path else ""
        return ", ".join(filter(None, [by, f"at {self.at}" if self.at else ""]))


class Pulse:
    """Writes the pulse of the running loop to `<folder>/<pid>.pulse`. Raises OSError where that can't be made."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._clock = clock
        self._held_file = folder / f"{os.getpid()}{HELD_SUFFIX}"
        path = folder / f"{os.getpid()}{PULSE_SUFFIX}"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.pwrite(self._file, _MOMENT.pack(0.0), 0)  # from now on there is room for it, however full the disk
        self._beats = 0
        self._seen: tuple[int, object] = (0, None)
        self._since = clock()
        self._is_told = False
        self._stopped = threading.Event()

    def start(self) -> None:
        self._beat()
        threading.Thread(target=self._run, name="gym-pulse", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> None:
        """See what the loop is at; in any other thread."""
        seen = (self._beats, asyncio.current_task(self._loop))
        if seen[0] != self._seen[0] or seen[1] is not self._seen[1]:
            self._seen = seen
            self._went_on()
        elif self._clock() - self._since >= TOLD_AFTER_SECONDS and not self._is_told:
            self._is_told = True
            self._tell()

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            self.look()

    def _beat(self) -> None:
        self._beats += 1
        self._note(self._clock())
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _went_on(self) -> None:
        self._since = self._clock()
        self._note(self._since)
        if self._is_told:
            self._is_told = False
            self._held_file.unlink(missing_ok=True)

    def _note(self, moment: float) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _MOMENT.pack(moment), 0)

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        request = None if frame is None else request_of(frame, asyncio.current_task(self._loop))
        with contextlib.suppress(OSError):
            write_private(self._held_file, json.dumps(asdict(_held(frame, request))))


def _held(frame: FrameType | None, request: Request | None) -> Held:
    at = "" if frame is None else _place(frame)
    return Held(at) if request is None else Held(at, request.server, request.path, request.rollout or "")


def _place(frame: FrameType) -> str:
    """`file:line` in the code of a component where there is some on the stack, else the innermost."""
    at: FrameType | None = frame
    while at is not None:
        file = at.f_code.co_filename
        if "site-packages" not in file and not file.startswith(_NOT_OWN) and not file.startswith("<"):
            return f"{file}:{at.f_lineno}"
        at = at.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def read_pulse(path: Path) -> float | None:
    """The moment (monotonic, of this machine) at which a loop last went on; None where nobody has told."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    moment = _MOMENT.unpack(content)[0] if len(content) == _MOMENT.size else 0.0
    return float(moment) or None


def read_held(folder: Path, pid: int) -> Held | None:
    """What the loop of a process is held by, as far as that process could tell."""
    try:
        return Held(**json.loads((folder / f"{pid}{HELD_SUFFIX}").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
