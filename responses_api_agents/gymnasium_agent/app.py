"""The agent of environments that are reset and stepped: each reply of the model is a step."""

from typing import Any, ClassVar, Literal

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status
from responses_api_agents.gymnasium_agent.environment import Environment
from responses_api_agents.gymnasium_agent.episode import Episode, with_observation
from responses_api_agents.simple_agent.conversation import Conversation, cookie_values
from responses_api_agents.simple_agent.environment import metrics_at
from responses_api_agents.simple_agent.recording import TRAJECTORY_KEY, Recording, add_resolution, take_trajectory


class GymnasiumAgentConfig(BaseResponsesAPIAgentConfig):
    """`max_steps` bounds the model calls of an episode."""

    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = Field(default=10, ge=1)


class GymnasiumAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class GymnasiumAgentResponse(BaseVerifyResponse):
    """A rollout: the rewards of its steps in one, how it ended, and the last step's `info`."""

    model_config = ConfigDict(extra="allow")

    terminated: bool
    truncated: bool
    info: dict[str, Any]


class GymnasiumAgent(SimpleResponsesAPIAgent):
    config: GymnasiumAgentConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def run(  # type: ignore[override]
        self, request: Request, body: GymnasiumAgentRunRequest = Body()
    ) -> GymnasiumAgentResponse:
        """Reset the environment, and step it with what the model says until the episode is over."""
        environment = Environment(
            self.server_client, self.config.resources_server.name, body.model_dump(), cookie_values(request.cookies)
        )
        try:
            result = await self._played(environment, body)
        except Exception:
            await environment.close_quietly()
            raise
        except BaseException:
            environment.close_in_background()
            raise
        try:
            await environment.close()
        except Exception as error:
            warning = {"operation": "close", "error_type": type(error).__name__, "message": str(error)}
            result.info["cleanup_warning"] = warning
        return result

    async def _played(self, environment: Environment, body: GymnasiumAgentRunRequest) -> GymnasiumAgentResponse:
        reset = await environment.reset()
        params = with_observation(body.responses_create_params, reset.observation)
        rollout_id = self.rollout_id_from_run(body) if self._model_call_capture_enabled() else None
        recording = Recording("root", self.config.model_server) if rollout_id is not None else None

        async def ask_model(sent: Any, cookies: dict[str, str] | None) -> tuple[Any, dict[str, str]]:
            return await self._ask_model(self.url_path_for_run("/v1/responses", body), sent, cookies)

        episode = Episode(environment, Conversation(params), ask_model, recording)
        await episode.play(self.config.max_steps)
        observed = {} if recording is None else {"ng_trajectory": self._trajectory(episode, recording, rollout_id)}
        return GymnasiumAgentResponse(
            responses_create_params=params,
            response=episode.conversation.result(),
            reward=episode.reward,
            terminated=episode.last.terminated,
            truncated=episode.last.truncated,
            info=episode.last.info,
            **observed,
        )

    def _trajectory(self, episode: Episode, recording: Recording, rollout_id: str | None) -> dict[str, Any] | None:
        status: Literal["completed", "incomplete"] = "completed" if episode.last.terminated else "incomplete"
        invocation = recording.invocation(status, episode.conversation.input_items())
        record = recording.trajectory(rollout_id or "", invocation).model_dump(mode="json")
        trajectory = take_trajectory({TRAJECTORY_KEY: record}, episode.environment.row)
        if trajectory is not None:
            add_resolution(trajectory, episode.last.info)
        return trajectory

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """What the model answers, without an environment."""
        url_path = self.url_path_for_request("/v1/responses", request)
        answer, cookies = await self._ask_model(url_path, body, cookie_values(request.cookies))
        for name, value in cookies.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(answer)

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        return await metrics_at(self.server_client, self.config.resources_server.name, body)

    async def _ask_model(self, url_path: str, sent: Any, cookies: dict[str, str] | None) -> tuple[Any, dict[str, str]]:
        answer = await self.server_client.post(
            server_name=self.config.model_server.name, url_path=url_path, json=sent, cookies=cookies
        )
        await raise_for_status(answer)
        return await get_response_json(answer), cookie_values(answer.cookies)


if __name__ == "__main__":
    GymnasiumAgent.run_webserver()
