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


async def verdict_unjudged(
    error: Exception, ordinary: Callable[[], Awaitable[Any]], again: Callable[[], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """The fields of a verdict for a response that a judge failed at; `ordinary` asks it about an ordinary one, `again`
    once more about this one, for those fields.

    `error` is a JudgeError. Where it is a refusal, as of what is longer than the judge's context, and the judge does
    judge the other response and refuses this one again, it was this one's doing: reward 0, with the reason. Else the
    error is raised.
    """
    if not _is_refusal(error) or not await _ends(ordinary):
        raise error
    try:
        return await again()
    except Exception as second:
        if not _is_refusal(second):
            raise
    return {"reward": 0.0, "failure_reason": f"the judge refuses this response: {error}"}


def _is_refusal(error: Exception) -> bool:
    return bool(getattr(error, "is_refusal", False))


async def _ends(ordinary: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await ordinary()
    except Exception:
        return False
    return True
