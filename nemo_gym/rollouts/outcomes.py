"""The failure of a rollout, as one record."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.schema.episodes import EpisodeFailure, EpisodeId


class RolloutFailure(BaseModel):
    """What failed, who says so, and whether the request had reached the environment server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    episode_id: EpisodeId
    run_id: str
    source: Literal["environment", "collector"]
    delivery: Literal["not_sent", "possibly_delivered", "delivered"]
    failure: EpisodeFailure
    http_status: int | None = Field(default=None, ge=100, le=599)
    exception_type: str | None = Field(default=None, max_length=2000)

    @model_validator(mode="after")
    def check_delivery(self) -> Self:
        if self.source == "environment" and self.delivery != "delivered":
            raise ValueError("a failure the environment reports was delivered")
        return self
