"""The shipped episode protocol: one agent, one turn, one verdict."""

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.episode_types import BaseEpisodeRequest, BaseEpisodeResponse, EpisodeFailure
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_observability import AgentObservationBundle


class SingleAgentTurnTaskInput(BaseModel):
    """What the agent is asked, and what the verifier needs to know."""

    model_config = ConfigDict(extra="forbid")

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    task_data: dict[str, JsonValue]

    @model_validator(mode="before")
    @classmethod
    def accept_flat_task_input(cls, value: object) -> object:
        """Folds the fields of a flat row into `task_data`.

        Raises ValueError for a field that is there and in `task_data`, with different values.
        """
        if not isinstance(value, dict):
            return value
        flat = {key: item for key, item in value.items() if key not in cls.model_fields}
        if not flat and "task_data" in value:
            return value
        task_data: dict[str, Any] = value.get("task_data") or {}
        conflicts = sorted(key for key in flat.keys() & task_data.keys() if flat[key] != task_data[key])
        if conflicts:
            raise ValueError(f"given twice with different values, in the row and in task_data: {', '.join(conflicts)}")
        rest = {key: item for key, item in value.items() if key in cls.model_fields}
        return {**rest, "task_data": {**task_data, **flat}}


class SingleAgentTurnResult(BaseVerifyResponse):
    """The verdict, with whatever the verifier adds."""

    model_config = ConfigDict(extra="allow")

    ng_agent_observations: AgentObservationBundle | None = None


class SingleAgentTurnFailure(EpisodeFailure):
    """A failure, with the answer the agent had given before."""

    partial_response: NeMoGymResponse | None = None


class SingleAgentTurnRequest(BaseEpisodeRequest[SingleAgentTurnTaskInput]):
    """Asks for one turn."""


class SingleAgentTurnResponse(BaseEpisodeResponse[SingleAgentTurnResult]):
    """The verdict or the failure of one turn."""

    failure: SingleAgentTurnFailure | None = None
