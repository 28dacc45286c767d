"""Ending a collection early and in order: what a signal does, and how to go on afterwards."""

from __future__ import annotations

import asyncio
import os
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
from nemo_gym.rollouts.long_stages import is_in_long_stage
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.watching import Watch, loss_during, watch_collection
from nemo_gym.serve.garbage import relax_collection

T = TypeVar("T")
Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | signal.Handlers

_ECHO_SECONDS = 2.0
_SECRET_FLAG = "--model-api-key"
_BY_NAME = "env:"
_STAND_IN = "env:POLICY_API_KEY"
_STAND_IN_NAME = re.compile(r"(?:env:|\$\{oc\.env:)(\w+)")
_NO_SERVE = "--no-serve"
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
    before = _look_of(results)
    try:
        relax_collection()
        collected = asyncio.run(_cancelled_by_signals(collection, received, results, watch))
    except _Loss as loss:
        raise ServersLostError(f"{loss}\n{_farewell(results, argv, before, first=_lost_servers(argv))}") from None
    except asyncio.CancelledError:
        if not received:
            raise
        ended = StoppedError if received[0] is signal.SIGINT else TerminatedError
        unscored = last_state(results.journal) == "done" and not results.aggregate_metrics.exists()
        told = "Stopped before the metrics were computed" if unscored else "Stopped"
        raise ended(_farewell(results, argv, before, what=told)) from None
    finally:
        collection.close()  # a signal may have come before it began
    if last_state(results.journal) == DRAINED:
        raise TerminatedError(_farewell(results, argv, before))
    return collected


class _Loss(Exception):
    """Servers ended, and the collection was ended for it."""


async def _cancelled_by_signals(
    collection: Coroutine[Any, Any, T], received: list[signal.Signals], results: ResultSet, watch: Watch | None
) -> T:
    watch_collection(watch)
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
            signal.signal(number, wrapped(handler or signal.SIG_DFL))

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        restore(partial(_later, since=time.monotonic()))
        if is_in_long_stage():
            raise asyncio.CancelledError
        loop.call_soon_threadsafe(task.cancel)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        if not received:
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


def _look_of(results: ResultSet) -> list[tuple[int, ...] | None]:
    """What changes when a run begins to write."""
    stats = (path.stat() if path.exists() else None for path in (results.output, results.journal))
    return [stat and (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


def _farewell(
    results: ResultSet,
    argv: Sequence[str],
    before_it: list[tuple[int, ...] | None],
    *,
    what: str = "Stopped",
    first: str = "",
) -> str:
    """What is saved and how to go on; `first` is what has to be done before that, in words.

    `before_it` is how the files looked when the run began.
    """
    is_earlier = before_it == _look_of(results) and not _resumes(argv)
    unset = [name for name in _stand_ins(argv) if name not in os.environ]
    keys = f"set {', '.join(unset)} to the key, which is not repeated here" if unset else ""
    before = ", ".join(filter(None, (first, keys)))
    go_on = "begin again" if is_earlier and results.has_results else "go on"
    then = f"{before}, then {go_on} with:" if before else f"{go_on} with:"
    then = then[:1].upper() + then[1:]
    if is_earlier and results.has_results:
        command = shlex.join(["gym", *_without_secrets(argv)])
        return f"Stopped before any rollout was run: {results.output} is as it was. {then}\n{command}"
    saved = (
        "no rollout is" if is_earlier else f"{_lines(results.output)} of {_lines(results.materialized)} rollouts are"
    )
    return f"{what}: {saved} saved in {results.output}. {then}\n{resume_command(argv, results.output)}"


def _resumes(argv: Sequence[str]) -> bool:
    return any(token in _RESUME_TOKENS for token in argv)


def _lost_servers(argv: Sequence[str]) -> str:
    """Servers that somebody else started have to be started by somebody; a run starts its own itself."""
    return "start the servers again" if _NO_SERVE in argv else ""


def _stand_ins(argv: Sequence[str]) -> list[str]:
    """The environment variables that the command which goes on reads in place of secrets that were typed."""
    replaced = (shown for token, shown in zip(argv, _without_secrets(argv), strict=True) if shown != token)
    return list(dict.fromkeys(name for shown in replaced for name in _STAND_IN_NAME.findall(shown)))


def resume_command(argv: Sequence[str], output: Path) -> str:
    """The command that goes on with a run that was started as `gym *argv`; secrets are left to the environment."""
    tokens = [token for token in _without_secrets(argv) if token not in _OVERWRITE_TOKENS]
    if not any(token.startswith(_OUTPUT_MARKS) for token in tokens):
        tokens += ["--output", str(output)]
    if not _resumes(tokens):
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
