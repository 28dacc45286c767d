"""What an agent asks of an environment that is reset and stepped, and what it is told."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming


class EnvResetRequest(BaseModel):
    """A row; what is not declared here is the environment's `metadata`."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class EnvResetResponse(BaseModel):
    """`observation` is shown to the model after the row's prompt; `info` is for the agent."""

    observation: str | None = None
    info: dict[str, Any] = Field(default_factory=dict)


class EnvStepRequest(EnvResetRequest):
    """The row with what the model said now, without what it said before."""

    response: NeMoGymResponse


class EnvStepResponse(EnvResetResponse):
    """`reward` is this step's alone. `terminated`: the episode is over; `truncated`: it was cut short."""

    reward: float = Field(default=0.0, allow_inf_nan=False)
    terminated: bool = False
    truncated: bool = False


class EnvCloseResponse(BaseModel):
    """The session is closed."""
