"""A server program that a model server starts, waits for, and neither outlives nor survives."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from nemo_gym.errors import GymError

POLL_SECONDS = 3.0
_ANSWER_TIMEOUT_SECONDS = 5.0
_STOP_SECONDS = 10.0
_POLLS_PER_LINE = 10
# The kernel kills the program when its parent dies, however that happens.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


class EngineEnded(GymError):
    """The program ended before it served anything."""


def end_this_process() -> NoReturn:
    """Ends at once: what is left to do needs the engine."""
    sys.stdout.flush()
    os._exit(1)


class EngineProcess:
    """`name` is what messages call it; `variables` are added to this process's environment."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        on_death: Callable[[], object] = end_this_process,
    ) -> None:
        self.name = name
        self._on_death = on_death
        self._stopping = threading.Event()
        wrapper = [sys.executable, "-c", _DIE_WITH_PARENT] if sys.platform == "linux" else []
        self._process = subprocess.Popen(
            [*wrapper, *command], env={**os.environ, **variables}, stdin=subprocess.DEVNULL
        )

    def wait_until_it_answers(self, url: str, headers: Mapping[str, str]) -> None:
        """Asks `url` every three seconds until it answers with a success. Raises EngineEnded."""
        polls = 0
        while not _answers(url, headers):
            if polls % _POLLS_PER_LINE == 0:
                print(f"Waiting for {self.name} at {url}", flush=True)
            polls += 1
            try:
                code = self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise EngineEnded(f"{self.name} ended with exit code {code} before it was ready: its output is above.")

    def watch(self) -> None:
        """From now on this process ends when the program does."""
        threading.Thread(target=self._watch, name=f"watch-{self.name}", daemon=True).start()

    def stop(self) -> None:
        """Ends the program, in order if it can be had."""
        self._stopping.set()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._stopping.is_set():
            print(f"{self.name} ended with exit code {code}.", flush=True)
            self._on_death()


def _answers(url: str, headers: Mapping[str, str]) -> bool:
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_SECONDS) as reply:
            return bool(200 <= reply.status < 300)
    except OSError:
        return False
