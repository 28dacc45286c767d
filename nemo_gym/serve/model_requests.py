"""What a model server is told about requests: which of them generate nothing, and what became of one."""

from __future__ import annotations

from typing import Literal, TypedDict

from starlette.requests import Request

from nemo_gym.token_id_capture.config import NonGeneratingRequest

__all__ = ["ModelExecutionOutcome", "NonGeneratingRequest", "start_model_execution"]


class ModelExecutionOutcome(TypedDict):
    """What became of one model call, for the record of it."""

    upstream_attempted: bool
    response_source: Literal["upstream", "local"] | None
    upstream_status_code: int | None
    local_response_reason: str | None


def start_model_execution(request: Request, *, upstream_attempted: bool) -> ModelExecutionOutcome:
    """The outcome of this request, kept with it; the model server fills it in as it learns more."""
    outcome = ModelExecutionOutcome(
        upstream_attempted=upstream_attempted,
        response_source=None,
        upstream_status_code=None,
        local_response_reason=None,
    )
    request.state.nemo_gym_model_execution = outcome
    return outcome
