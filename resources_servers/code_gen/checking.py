"""Running a program against its unit tests, up to the first it fails."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nemo_gym.verifiers.code_cases import CaseResult, PythonCases, python_cases
from nemo_gym.verifiers.code_runner import CodeRunner, Limits, RunStatus
from resources_servers.code_gen.comparison import printed_difference, returned_difference
from resources_servers.code_gen.prelude import prelude
from resources_servers.code_gen.unit_tests import Call, UnitTests, calls_of

GLOBAL_TIMEOUT: Final = -1
WRONG_ANSWER: Final = -2
TIME_LIMIT: Final = -3
RUNTIME_ERROR: Final = -4

MEMORY_MIB = 4096
_CASE_BYTES = 4 * 1024 * 1024
_ANSWER_BYTES = 64 * 1024 * 1024
_SHOWN = 300


@dataclass(frozen=True)
class Verdict:
    """`result` has True for each test passed, and a negative code for the first that wasn't; `metadata` says more."""

    result: list[bool | int]
    metadata: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return bool(self.result) and all(outcome is True for outcome in self.result)


def code_runner(concurrency: int, *, allow_unsandboxed: bool = False) -> CodeRunner:
    """What runs the programs of a server, `concurrency` at a time. They may import the packages installed for it."""
    return CodeRunner(
        concurrency=concurrency,
        packages=True,
        allow_unsandboxed=allow_unsandboxed,
        max_output_bytes=_ANSWER_BYTES,
    )


async def check(runner: CodeRunner, tests: UnitTests, code: str, timeout_s: float) -> Verdict:
    """Run `code` on each test for `timeout_s` seconds at most. Raises RowError, CodeRunnerError."""
    calls = await asyncio.to_thread(calls_of, tests) if tests.fn_name else None
    total = seconds_for_all(timeout_s, len(tests.inputs))
    limits = Limits(wall_s=total, cpu_s=_cpu_seconds(timeout_s), memory_mib=MEMORY_MIB)
    longest = max(map(len, tests.outputs))
    async with python_cases(
        runner,
        code,
        prelude=prelude(calls=calls is not None),
        case_seconds=timeout_s,
        limits=limits,
        max_output_bytes=_CASE_BYTES + 4 * longest,
    ) as cases:
        started = time.monotonic()
        verdict = await _judged(cases, tests, calls)
        seconds = time.monotonic() - started
        is_late = verdict.result[-1] == TIME_LIMIT and cases.is_out_of_time(total)
    if is_late:
        metadata = {**verdict.metadata, "error_code": GLOBAL_TIMEOUT, "error_message": "Global Time Limit Exceeded"}
        return Verdict([GLOBAL_TIMEOUT] * len(tests.inputs), metadata, seconds)
    metadata = verdict.metadata or {"execution time": seconds}
    return Verdict(verdict.result, metadata, seconds)


def seconds_for_all(timeout_s: float, tests: int) -> float:
    """What all tests of a program may take together, and loading it."""
    return (timeout_s + 1) * tests + 5


async def _judged(cases: PythonCases, tests: UnitTests, calls: Sequence[Call] | None) -> Verdict:
    passed: list[bool | int] = []
    for number, expected in enumerate(tests.outputs):
        if calls is None:
            done = await cases.run(tests.inputs[number])
        else:
            done = await cases.call(tests.fn_name or "", calls[number].arguments)
        failure = await asyncio.to_thread(_failure, done, expected, calls[number] if calls is not None else None)
        if failure:
            shown = {"inputs": shortened(tests.inputs[number]), "expected": shortened(expected)}
            return Verdict([*passed, failure["error_code"]], {**failure, **shown})
        passed.append(True)
    return Verdict(passed)


def _failure(done: CaseResult, expected: str, call: Call | None) -> dict[str, Any] | None:
    if done.status is RunStatus.TIMEOUT:
        return {"error_code": TIME_LIMIT, "error_message": "Time Limit Exceeded", "error": "timeout"}
    if not _ended_well(done):
        return {
            "error_code": RUNTIME_ERROR,
            "error_message": "Runtime Error",
            "error": _error_of(done),
            "traceback": shortened(done.stderr),
        }
    if call is None:
        difference, shown = printed_difference(done.stdout, expected), done.stdout
    else:
        returned = done.returned
        difference = returned_difference(returned.value, call.expected) if returned.is_given else "Wrong Answer"
        shown = repr(returned.value) if returned.is_given else ""
    if difference is None:
        return None
    return {"error_code": WRONG_ANSWER, "error_message": difference, "output": shortened(shown)}


def _ended_well(done: CaseResult) -> bool:
    """A program may exit with whatever code it likes, as long as it wasn't for an error."""
    return done.is_ok or (done.status is RunStatus.FAILED and done.exit_code is not None and not done.raised)


def _error_of(done: CaseResult) -> str:
    last = done.stderr.strip().rpartition("\n")[2]
    kinds = {RunStatus.MEMORY: "out of memory", RunStatus.OUTPUT: "too much output"}
    return kinds.get(done.status) or shortened(last) or f"ended by signal {done.signal}"


def shortened(text: str, length: int = _SHOWN) -> str:
    """The text, without its middle where it is longer than `length`."""
    return text if len(text) <= length else f"{text[: length // 2]}...(truncated) ...{text[-(length // 2) :]}"


def _cpu_seconds(timeout_s: float) -> int:
    """Of each process, among them the one that collects the output of all others."""
    return 60 + math.ceil(timeout_s)
