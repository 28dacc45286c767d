"""How what goes wrong between an environment server and the servers it calls becomes the failure of an episode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import ClientConnectionError, ClientPayloadError, ClientResponseError
from pydantic import ValidationError

from nemo_gym.base_environment_server import HandledEpisodeError
from nemo_gym.failure_kinds import FailureStage
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.single_agent_turn_types import SingleAgentTurnFailure

MAX_REASON_CHARS = 2_000
_RETRYABLE_STATUSES = frozenset({408, 425, 429})


@contextmanager
def failing_at(stage: FailureStage, what: str, response: dict[str, Any] | None = None) -> Iterator[None]:
    """Errors inside become HandledEpisodeErrors of that stage; `response` is what the agent had answered by then."""
    try:
        yield
    except HandledEpisodeError:
        raise
    except Exception as error:
        raise failed(
            stage, f"{what}: {_describe(error)}", terminal=not _is_retryable(error), response=response
        ) from error


def failed(
    stage: FailureStage,
    reason: str,
    *,
    terminal: bool,
    response: dict[str, Any] | None = None,
    kind: str | None = None,
) -> HandledEpisodeError:
    """The exception that ends an episode with this failure."""
    return HandledEpisodeError(
        SingleAgentTurnFailure(
            failure_reason=reason[:MAX_REASON_CHARS],
            terminal=terminal,
            failure_kind=kind,
            stage=stage,
            partial_response=_readable(response),
        )
    )


def refuse_unmeasured(verdict: dict[str, Any], response: dict[str, Any]) -> None:
    """Raises HandledEpisodeError for a verdict that says it is none, such as one whose judge could not be asked."""
    kind = verdict.get("_ng_failure_class")
    if kind is None:
        return
    reason = str(verdict.get("failure_reason") or verdict.get("_ng_failure_message") or kind)
    terminal = bool(verdict.get("_ng_failure_terminal"))
    raise failed("verification", reason, terminal=terminal, response=response, kind=str(kind))


def _is_retryable(error: Exception) -> bool:
    if isinstance(error, ClientResponseError):
        return error.status in _RETRYABLE_STATUSES or error.status >= 500
    return isinstance(error, ClientConnectionError | ClientPayloadError | TimeoutError | ConnectionError)


def _describe(error: Exception) -> str:
    content = getattr(error, "response_content", None)
    if isinstance(error, ClientResponseError) and isinstance(content, bytes):
        return f"HTTP {error.status}: {content.decode('utf-8', errors='replace')}"
    return f"{type(error).__name__}: {error}"


def _readable(response: dict[str, Any] | None) -> NeMoGymResponse | None:
    try:
        return NeMoGymResponse.model_validate(response) if response is not None else None
    except ValidationError:
        return None
