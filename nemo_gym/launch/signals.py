"""INT, TERM and HUP mean the same orderly stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(KeyboardInterrupt):
    """Somebody asked the program to stop; `signum` says how."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def stop_signals() -> Iterator[None]:
    """Within, the three signals raise StopRequested in the main thread; elsewhere this does nothing.

    Handlers that somebody else installed stay: whoever has them has plans of their own. An ignored INT or TERM (a job
    started with `&`) is heard again; an ignored HUP is what `nohup` asked for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    replaced = {number: signal.getsignal(number) for number in _STOP if _is_ours_to_take(number)}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, replaced)
    for number in replaced:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            if signal.getsignal(number) is _raise:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def deaf() -> Iterator[None]:
    """Within, the three signals wait: an orderly stop is under way, and a second Ctrl-C must not leave half of it."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _is_ours_to_take(number: signal.Signals) -> bool:
    handler = signal.getsignal(number)
    if handler is signal.SIG_IGN:
        return number != signal.SIGHUP
    return handler in (signal.SIG_DFL, signal.default_int_handler)


def _raise(signum: int, _frame: FrameType | None) -> None:
    raise StopRequested(signum)
