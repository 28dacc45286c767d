"""Waiting for servers that somebody else is starting."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from nemo_gym.config.handover import run_directory
from nemo_gym.config.keys import SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME
from nemo_gym.rollouts.errors import ServersUnavailableError
from nemo_gym.serve.errors import UnreachableHeadError

T = TypeVar("T")

DEFAULT_SECONDS = 600.0
_GRACE_SECONDS = 3.0
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_TRIES = 0.25
_SERVERS_ASKED_AT_ONCE = 16


def _say(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class Clock:
    """Time, as the waits below see it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = _say


def wait_for_head(
    connect: Callable[[], T], head_port: int, *, seconds: float = DEFAULT_SECONDS, clock: Clock | None = None
) -> T:
    """What `connect` returns once the head server answers.

    A head server that doesn't answer is waited for as long as a run on this machine owns its port, else for a few
    seconds only. Raises ServersUnavailableError.
    """
    wait = _Wait(clock or Clock(), seconds)
    while True:
        try:
            return connect()
        except UnreachableHeadError as error:
            patience = seconds if run_directory(head_port).exists() else min(seconds, _GRACE_SECONDS)
            if wait.is_over(patience):
                raise ServersUnavailableError(str(error)) from error
            wait.once("Waiting for the head server to answer")


def wait_for_servers(
    names: Iterable[str],
    status_of: Callable[[str], str],
    *,
    seconds: float = DEFAULT_SECONDS,
    clock: Clock | None = None,
) -> None:
    """Return once every named server answers; says every ten seconds which ones don't yet.

    `seconds` of 0 or less means no limit. Raises ServersUnavailableError naming those that never answered.
    """
    wait = _Wait(clock or Clock(), seconds)
    missing = list(names)
    while missing := _unanswering(missing, status_of):
        if seconds > 0 and wait.is_over(seconds):
            raise ServersUnavailableError(
                f"{', '.join(missing)} did not answer within {seconds:.0f} s: see `gym env status` and "
                f"`gym env logs {missing[0]}`, or raise {SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME}."
            )
        wait.once(f"Waiting for {', '.join(missing)}")


def spinup_seconds(config: Mapping[Any, Any]) -> float:
    """How long the config lets servers take to start; the default where it doesn't say."""
    value = config.get(SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else DEFAULT_SECONDS


def _unanswering(names: list[str], status_of: Callable[[str], str]) -> list[str]:
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=min(len(names), _SERVERS_ASKED_AT_ONCE)) as pool:
        statuses = list(pool.map(status_of, names))
    return [name for name, status in zip(names, statuses, strict=True) if status != "success"]


class _Wait:
    """One wait: how long it has lasted, and when it was last spoken of."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._limit = f" of at most {seconds:.0f}" if seconds > 0 else ""
        self._started = self._spoke = clock.now()

    def is_over(self, seconds: float) -> bool:
        return self._clock.now() - self._started >= seconds

    def once(self, what: str) -> None:
        """Pause until the next try, saying what for when that is due."""
        now = self._clock.now()
        if now - self._spoke >= _SECONDS_BETWEEN_LINES:
            self._spoke = now
            self._clock.say(f"{what} ({now - self._started:.0f} s{self._limit}).")
        self._clock.sleep(_SECONDS_BETWEEN_TRIES)
