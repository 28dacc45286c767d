"""One Python program over many test inputs: loaded once, each input in a process of its own.

The expected outputs stay here: an input goes in, what the program printed or returned comes out.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.providers.namespaces.box import Limits, interpreter
from nemo_gym.sandbox.providers.namespaces.conversation import Conversation, ConversationEndedError
from nemo_gym.verifiers.case_driver import RAISED
from nemo_gym.verifiers.code_runner import CodeRunner, RunResult, RunStatus

_DRIVER = Path(__file__).with_name("case_driver.py")
_LOAD_SECONDS = 30.0
_SPARE_SECONDS = 5.0
_NOTICED_SECONDS = 1.0


@dataclass(frozen=True)
class Returned:
    """A call's value; `is_given` is false when it could not be told, as for what JSON has no words for."""

    value: Any = None
    is_given: bool = False


@dataclass(frozen=True)
class CaseResult(RunResult):
    """`returned` is for calls. `seconds` are counted outside of the program."""

    returned: Returned = Returned()
    seconds: float = 0.0

    @property
    def raised(self) -> bool:
        """An exception ended it, other than by `sys.exit`."""
        return self.exit_code == RAISED


class PythonCases:
    """A loaded program; `python_cases` makes one. `load_error` is set for a program that doesn't compile."""

    def __init__(self, runner: CodeRunner, talk: Conversation, case_seconds: float, max_bytes: int) -> None:
        self._runner, self._talk = runner, talk
        self._case_seconds, self._max_bytes = case_seconds, max_bytes
        self._end: RunResult | None = None
        self._began = time.monotonic()
        self.load_error: str = ""

    def is_out_of_time(self, wall_s: float) -> bool:
        """Whether everything has ended because all cases together, with loading, took `wall_s` seconds."""
        took = time.monotonic() - self._began
        return self._end is not None and self._end.status is RunStatus.TIMEOUT and took > wall_s - _NOTICED_SECONDS

    async def load(self, source: str, prelude: str) -> None:
        """What it prints or raises while it is loaded is no one's business. Raises CodeRunnerError."""
        answer = await self._ask({"source": source, "prelude": prelude}, _LOAD_SECONDS)
        self.load_error = answer.get("error", "")

    async def run(self, stdin: str) -> CaseResult:
        """The program with an input. Raises CodeRunnerError when it could not be run."""
        return await self._case({"stdin": stdin})

    async def call(self, name: str, arguments: Sequence[Any]) -> CaseResult:
        """A function of the program, or method of its class `Solution`, with JSON values. Raises CodeRunnerError."""
        return await self._case({"call": name, "arguments": list(arguments)})

    async def _case(self, what: Mapping[str, Any]) -> CaseResult:
        if self.load_error:
            return CaseResult(RunStatus.FAILED, stderr=self.load_error, exit_code=RAISED)
        request = {**what, "seconds": self._case_seconds, "max_bytes": self._max_bytes}
        started = time.monotonic()
        answer = await self._ask(request, self._case_seconds * 2 + _SPARE_SECONDS)
        seconds = time.monotonic() - started
        if self._end is not None:
            return CaseResult(**vars(self._end), seconds=seconds)
        return _case_result(answer, seconds)

    async def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Nothing when the whole box has ended, which `_end` then tells of."""
        if self._end is not None:
            return {}
        try:
            line = await self._talk.ask(json.dumps(request).encode() + b"\n", timeout_s)
        except ConversationEndedError as error:
            # With the program in the same box as the driver, an end without a limit in play is the program's doing.
            end = self._runner.outcome(error.ended)
            self._end = replace(end, status=RunStatus.CRASHED) if end.is_ok else end
            return {}
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        self._end = RunResult(RunStatus.CRASHED, stderr="the program wrote where only its driver may")
        return {}


@contextlib.asynccontextmanager
async def python_cases(
    runner: CodeRunner,
    source: str,
    *,
    prelude: str = "",
    case_seconds: float = 10.0,
    limits: Limits | None = None,
    files: Mapping[str, str | bytes] | None = None,
    max_output_bytes: int = 1024 * 1024,
) -> AsyncIterator[PythonCases]:
    """Load a program after `prelude`, whose imports are made once. Each case may take `case_seconds`; `limits.wall_s`
    holds for all of them together, the others for each process. Raises CodeRunnerError."""
    argv = [interpreter(), "-P", "-s", str(_DRIVER)]
    read_only = [str(_DRIVER)]
    async with runner.converse(argv, files=files, limits=limits, read_only=read_only) as talk:
        cases = PythonCases(runner, talk, case_seconds, max_output_bytes)
        await cases.load(source, prelude)
        yield cases


def _case_result(answer: Mapping[str, Any], seconds: float) -> CaseResult:
    code = os.waitstatus_to_exitcode(answer["status"])
    returned = Returned()
    with contextlib.suppress(ValueError, RecursionError):
        returned = Returned(json.loads(answer["value"]), is_given=True)
    return CaseResult(
        status=_status(answer["ended_for"], code, answer["stderr"]),
        stdout=answer["stdout"],
        stderr=answer["stderr"],
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        returned=returned,
        seconds=seconds,
    )


def _status(ended_for: str, code: int, stderr: str) -> RunStatus:
    if ended_for:
        return RunStatus.OUTPUT if ended_for == "output" else RunStatus.TIMEOUT
    if code == 0:
        return RunStatus.OK
    if stderr.strip().rpartition("\n")[2].startswith("MemoryError"):
        return RunStatus.MEMORY
    return RunStatus.FAILED if code > 0 else RunStatus.CRASHED
