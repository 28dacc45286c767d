"""Processes that a server's own code forks: they end when they are told to, and tell the server nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

_STOP = (signal.SIGINT, signal.SIGTERM)
_registered = False
_forking = threading.local()


def reset_signals_in_forks() -> None:
    """From now on forks of this process begin with the usual INT and TERM; a second call changes nothing.

    Otherwise they inherit a server's handlers, which make a note for a loop that doesn't run there, so that
    `multiprocessing.Pool.terminate` waits for ever; and its wakeup descriptor, through which they would stop it.
    """
    global _registered
    if not _registered:
        _registered = True
        os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_reset)


def _hold() -> None:
    """A signal that comes before the child's handlers are its own waits for them."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)


def _let_go() -> None:
    mask: Iterable[int] = getattr(_forking, "mask", ())
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _reset() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_go()
