"""Ending a collection early and in order: what a signal does, and how to go on afterwards."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from nemo_gym.config.secrets import MASK, hide_secrets_in_overrides
from nemo_gym.rollouts.errors import ServersLostError, StoppedError, TerminatedError
from nemo_gym.rollouts.journal import DRAINED, last_state
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.watching import Watch, loss_during
from nemo_gym.serve.garbage import relax_collection

T = TypeVar("T")
Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | signal.Handlers

_ECHO_SECONDS = 2.0
_SECRET_FLAG = "--model-api-key"
_BY_NAME = "env:"
_STAND_IN = "env:POLICY_API_KEY"
_REFERENCE = re.compile(r"\$\{oc\.env:\w+\}")
_RESUME_TOKENS = (
    "--resume",
    "--resume-anyway",
    *(f"{plus}{key}=true" for plus in ("+", "++") for key in ("resume_from_cache", "resume_anyway")),
)
_OVERWRITE_TOKENS = ("--overwrite", "+overwrite=true", "++overwrite=true")
_OUTPUT_MARKS = ("--output", "-o", "output_jsonl_fpath=", "+output_jsonl_fpath=", "++output_jsonl_fpath=")


def run_until_signal(
    collection: Coroutine[Any, Any, T], results: ResultSet, argv: Sequence[str], watch: Watch | None = None
) -> T:
    """Run a collection in a loop of its own.

    SIGINT, SIGTERM and SIGHUP cancel it; once it has closed its books, StoppedError (SIGINT) or TerminatedError says
    what is saved and the command that goes on. A dispatch budget that was spent ends in TerminatedError too. What
    `watch` raises ends it likewise, as ServersLostError. A second signal is the system's to handle, unless it comes at
    once. `argv` are the arguments of this run of `gym`.
    """
    received: list[signal.Signals] = []
    try:
        relax_collection()
        collected = asyncio.run(_cancelled_by_signals(collection, received, results, watch))
    except _Loss as loss:
        raise ServersLostError(f"{loss}\n{_farewell(results, argv)}") from None
    except asyncio.CancelledError:
        if not received:
            raise
        ended = StoppedError if received[0] is signal.SIGINT else TerminatedError
        raise ended(_farewell(results, argv)) from None
    finally:
        collection.close()  # a signal may have come before it began
    if last_state(results.journal) == DRAINED:
        raise TerminatedError(_farewell(results, argv))
    return collected


class _Loss(Exception):
    """Servers ended, and the collection was ended for it."""


async def _cancelled_by_signals(
    collection: Coroutine[Any, Any, T], received: list[signal.Signals], results: ResultSet, watch: Watch | None
) -> T:
    task = asyncio.ensure_future(collection)
    with _handled(received, task):
        loss = None if watch is None else await loss_during(task, watch)
        if loss is not None and not received and not _is_complete(task, results):
            task.cancel()
            await asyncio.wait({task})
            raise _Loss(str(loss))
        return await task


def _is_complete(task: asyncio.Future[Any], results: ResultSet) -> bool:
    """Whether a collection has all it could want of its servers."""
    succeeded = task.done() and not task.cancelled() and task.exception() is None
    return succeeded and _lines(results.output) >= _lines(results.materialized)


@contextmanager
def _handled(received: list[signal.Signals], task: asyncio.Future[Any]) -> Iterator[None]:
    """Only the main thread may handle signals; elsewhere they stay whoever's they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _stop_signals()}

    def restore(wrapped: Callable[[Handler], Handler] = lambda handler: handler) -> None:
        for number, handler in before.items():
            if loop.remove_signal_handler(number):
                signal.signal(number, wrapped(handler or signal.SIG_DFL))

    def stop(number: signal.Signals) -> None:
        received.append(number)
        restore(partial(_later, since=time.monotonic()))
        task.cancel()

    for number in before:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        restore()


def _stop_signals() -> list[signal.Signals]:
    """A HUP that is ignored was so by `nohup`, which wants the run to go on."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def _later(handler: Handler, since: float) -> Handler:
    """A handler that ignores a signal said twice, as `timeout` and process groups do, and afterwards is `handler`."""

    def handle(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - since >= _ECHO_SECONDS:
            signal.signal(number, handler)
            signal.raise_signal(number)

    return handle


def _farewell(results: ResultSet, argv: Sequence[str]) -> str:
    saved = _lines(results.output)
    planned = _lines(results.materialized)
    return (
        f"Stopped: {saved} of {planned} rollouts are saved in {results.output}. Go on with:\n"
        f"{resume_command(argv, results.output)}"
    )


def resume_command(argv: Sequence[str], output: Path) -> str:
    """The command that goes on with a run that was started as `gym *argv`; secrets are left to the environment."""
    tokens = [token for token in _without_secrets(argv) if token not in _OVERWRITE_TOKENS]
    if not any(token.startswith(_OUTPUT_MARKS) for token in tokens):
        tokens += ["--output", str(output)]
    if not any(token in _RESUME_TOKENS for token in tokens):
        tokens.append("--resume")
    return shlex.join(["gym", *tokens])


def _without_secrets(argv: Sequence[str]) -> Iterator[str]:
    before = ""
    for token, shown in zip(argv, hide_secrets_in_overrides(argv), strict=True):
        flag, equals, value = token.partition("=")
        if before == _SECRET_FLAG:
            yield token if token.startswith(_BY_NAME) else _STAND_IN
        elif flag == _SECRET_FLAG and equals:
            yield token if value.startswith(_BY_NAME) else f"{flag}={_STAND_IN}"
        elif shown == f"{flag}={MASK}":
            yield token if _REFERENCE.fullmatch(value) else f"{flag}={_reference(flag)}"
        else:
            yield shown
        before = token


def _reference(flag: str) -> str:
    """How an override reads the environment variable that is named like its key."""
    return f"${{oc.env:{flag.lstrip('+').rpartition('.')[2].upper()}}}"


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
