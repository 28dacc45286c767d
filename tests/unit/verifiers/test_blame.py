from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nemo_gym.judge import JudgeError
from nemo_gym.verifiers.blame import ORDINARY, verdict_of_judge, verdict_without_end
from nemo_gym.verifiers.patterns import PatternTimeoutError, matching
from nemo_gym.verifiers.verdicts import RowError
from nemo_gym.verifiers.worker_pool import WorkerCrashError, WorkerError, WorkerPoolFullError, WorkerTimeoutError

MASKED = {"reward": 0.0, "mask_sample": True, "failure_kind": "verifier_error", "failure_reason": "why"}
WORTH_NOTHING = {"reward": 0.0, "failure_reason": "why"}
ENDLESS = [PatternTimeoutError("why"), WorkerTimeoutError("why"), WorkerCrashError("why")]
OTHER = [RowError("why"), WorkerError("why"), WorkerPoolFullError("why"), TimeoutError("why")]


async def ends() -> None:
    pass


async def does_not() -> None:
    raise WorkerTimeoutError("it takes long too")


async def breaks() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("error", ENDLESS, ids=lambda error: type(error).__name__)
async def test_a_check_that_ends_for_others_is_held_up_by_the_response(error: Exception) -> None:
    assert await verdict_without_end(error, ends) == WORTH_NOTHING
    assert await verdict_without_end(error, does_not) == MASKED
    assert await verdict_without_end(error, breaks) == MASKED


@pytest.mark.parametrize("error", OTHER, ids=lambda error: type(error).__name__)
async def test_other_failures_are_not_the_response_s(error: Exception) -> None:
    assert await verdict_without_end(error, ends) == MASKED


async def test_an_ordinary_text_shows_patterns_that_take_for_ever_on_any() -> None:
    for pattern in (r"(\w+\s?)+;;", r"([a-z]+ ?)+\d", r"^(.+)+;;"):
        with pytest.raises(PatternTimeoutError):
            await matching(pattern, [ORDINARY], seconds=0.1)
    assert await matching(r"(a+)+$", [ORDINARY], seconds=0.1) == [False]


# --- judges -----------------------------------------------------------------------------------------------------------


def unjudged(*, is_refusal: bool = False, cause: Exception | None = None) -> JudgeError:
    error = JudgeError("why")
    error.is_refusal, error.__cause__ = is_refusal, cause
    return error


def judging(*outcomes: JudgeError | float) -> Callable[[], Awaitable[dict[str, Any]]]:
    """What a judge says each time it is asked."""
    left = list(outcomes)

    async def ask() -> dict[str, Any]:
        outcome = left.pop(0)
        if isinstance(outcome, JudgeError):
            raise outcome
        return {"reward": outcome}

    return ask


async def test_the_only_response_that_a_judge_refuses_is_worth_nothing() -> None:
    refusal = unjudged(is_refusal=True)
    reason = "the judge refuses this response: why"
    assert await verdict_of_judge(judging(refusal, refusal), ends) == {"reward": 0.0, "failure_reason": reason}


async def test_a_judge_that_stumbled_once_says_what_it_thinks() -> None:
    """It may refuse what comes first, whatever that is."""
    assert await verdict_of_judge(judging(unjudged(is_refusal=True), 1.0), ends) == {"reward": 1.0}


async def test_what_fails_otherwise_the_second_time_has_failed() -> None:
    second = unjudged(cause=TimeoutError())
    with pytest.raises(JudgeError) as raised:
        await verdict_of_judge(judging(unjudged(is_refusal=True), second), ends)
    assert raised.value is second


async def test_a_judge_that_judges_nothing_has_failed() -> None:
    error = unjudged(is_refusal=True)
    with pytest.raises(JudgeError) as raised:
        await verdict_of_judge(judging(error, 1.0), breaks)
    assert raised.value is error


@pytest.mark.parametrize(
    "outcome", [1.0, unjudged(), unjudged(cause=TimeoutError())], ids=["verdict", "no verdict", "no answer"]
)
async def test_a_judge_that_did_not_refuse_is_not_asked_again(outcome: JudgeError | float) -> None:
    asked: list[int] = []

    async def ordinary() -> None:
        asked.append(1)

    if isinstance(outcome, JudgeError):
        with pytest.raises(JudgeError):
            await verdict_of_judge(judging(outcome), ordinary)
    else:
        assert await verdict_of_judge(judging(outcome), ordinary) == {"reward": outcome}
    assert asked == []
