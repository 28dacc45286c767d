"""Whose fault it is that a check of a response came to no end, or that a judge refused it.

Were it always the row's or the judge's, a model could have each of its bad rollouts masked, and so left out, by what it
writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nemo_gym.verifiers.patterns import PatternTimeoutError
from nemo_gym.verifiers.verdicts import unmeasured
from nemo_gym.verifiers.worker_pool import WorkerCrashError, WorkerTimeoutError

ORDINARY = (
    "The capital of France is Paris, a city on the Seine in which about two million people live at present.\n"
    "So the answer is Paris."
)
"""What a model might say."""


async def verdict_without_end(error: Exception, ordinary: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """The fields of a verdict for a check that failed with `error`; `ordinary` makes the same check of an ordinary
    response.

    Where it took too long, or took its process down, and the other one ends, it was the response's doing: reward 0,
    with the reason. Everything else says nothing about the model.
    """
    if isinstance(error, PatternTimeoutError | WorkerTimeoutError | WorkerCrashError) and await _ends(ordinary):
        return {"reward": 0.0, "failure_reason": str(error)}
    return unmeasured(error)


async def verdict_of_judge(
    ask: Callable[[], Awaitable[dict[str, Any]]], ordinary: Callable[[], Awaitable[Any]]
) -> dict[str, Any]:
    """The fields of a verdict that `ask` gets from a judge; `ordinary` asks it the same about an ordinary response.

    Where the judge refuses the response, as it does what is longer than its context, twice, and in between judges the
    other one, it was the response's doing: reward 0, with the reason. Else what `ask` raises is raised.
    """
    try:
        return await ask()
    except Exception as error:
        if not _is_refusal(error) or not await _ends(ordinary):
            raise
        reason = f"the judge refuses this response: {error}"
    try:
        return await ask()
    except Exception as error:
        if not _is_refusal(error):
            raise
    return {"reward": 0.0, "failure_reason": reason}


def _is_refusal(error: Exception) -> bool:
    """Of a JudgeError."""
    return bool(getattr(error, "is_refusal", False))


async def _ends(ordinary: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await ordinary()
    except Exception:
        return False
    return True
