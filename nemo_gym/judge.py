"""Asking a judge model from a verifier, and telling a judge that failed from an answer that is wrong."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.responses import JSONResponse

from nemo_gym.failure_kinds import JUDGE_FAILED
from nemo_gym.schema.backend_answers import is_context_overflow
from nemo_gym.serve.failures import Cause, plain_text
from nemo_gym.serve.redaction import shown
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

__all__ = ["JudgeError", "call_judge", "judge_failsafe", "reraise_judge_errors"]

MAX_REASON_CHARS = 2_000
MAX_REPLY_CHARS = 200
_REFUSALS = frozenset({400, 413, 422})
"""The statuses that say what is wrong with a request, and nothing about whoever it was sent to."""

ResponseT = TypeVar("ResponseT", bound=BaseModel)
T = TypeVar("T")


class JudgeError(Exception):
    """The judge could not be asked: the rollout is unmeasured, not wrong.

    `is_refusal`: what was asked is why, as it is when it's longer than the judge's context.
    """

    is_refusal: bool = False


async def reraise_judge_errors(coro: Awaitable[T]) -> T:
    """Await a call to a judge; whatever it raises becomes a JudgeError with the error's type and text.

    Of an HTTP error the start of the reply is added, which says what the status doesn't.
    """
    try:
        return await coro
    except Exception as error:
        failure = JudgeError(shown(f"{type(error).__name__}: {error}") + _reply_of(error))
        failure.is_refusal = _is_refusal(error)
        raise failure from error


def _is_refusal(error: Exception) -> bool:
    """By what the judge's backend answered, should its server have passed that on."""
    if isinstance(error, JudgeError):
        return error.is_refusal
    status, said = getattr(error, "status", None), getattr(error, "response_content", b"")
    if (cause := Cause.of_headers(getattr(error, "headers", None))) is not None:
        status, said = cause.status, cause.message
    return status in _REFUSALS or (status == 500 and is_context_overflow(said))


def _reply_of(error: Exception) -> str:
    content = getattr(error, "response_content", None)
    text = plain_text(content).strip() if isinstance(content, bytes) else ""
    return f"; the reply begins: {shown(text, MAX_REPLY_CHARS)}" if text else ""


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: Any, response_model: type[ResponseT]
) -> ResponseT:
    """Post to a judge's server and validate its answer; any failure is a JudgeError.

    An answer that arrives but says nothing usable is the verifier's business.
    """

    async def call() -> ResponseT:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    return await reraise_judge_errors(call())


def judge_failsafe(verify_fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Wrap a `/verify` handler so that a JudgeError answers 200 with a masked, unmeasured result.

    The wrapper keeps the handler's signature. Raises RuntimeError when a JudgeError comes from a handler without a
    verify request among its arguments.
    """

    @functools.wraps(verify_fn)
    async def verify(*args: Any, **kwargs: Any) -> Any:
        try:
            result = verify_fn(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        except JudgeError as error:
            return JSONResponse(_unmeasured(_verify_request(args, kwargs, error), shown(str(error))))

    return verify


def _verify_request(args: tuple[Any, ...], kwargs: dict[str, Any], error: JudgeError) -> Any:
    candidates = [kwargs["body"]] if "body" in kwargs else [*args, *kwargs.values()]
    for candidate in candidates:
        if hasattr(candidate, "model_dump") and hasattr(candidate, "response"):
            return candidate
    raise RuntimeError("a judge failed in a verify handler that was given no verify request") from error


def _unmeasured(body: Any, reason: str) -> dict[str, Any]:
    fields: dict[str, Any] = body.model_dump(mode="json")
    instance_config = fields.get("instance_config")
    return {
        **fields,
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": JUDGE_FAILED,
        "failure_reason": reason[:MAX_REASON_CHARS],
        "instance_config": {**(instance_config if isinstance(instance_config, dict) else {}), "mask_sample": True},
        "_ng_failure_class": JUDGE_FAILED,
        "_ng_failure_judge_error": reason,
    }
