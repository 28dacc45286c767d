"""One turn of one agent in one environment: open both sessions, respond, close the agent's, verify, close the other."""

from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from environment_servers.single_agent_turn.failures import refuse_unmeasured
from environment_servers.single_agent_turn.turn import Turn
from nemo_gym.base_environment_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseEnvironmentServer,
    BaseEnvironmentServerConfig,
    Body,
    CleanupContext,
)
from nemo_gym.config_types import AgentServerRef, ResourcesServerRef
from nemo_gym.server_utils import get_response_json, is_nemo_gym_fastapi_entrypoint, raise_for_status
from nemo_gym.single_agent_turn_types import SingleAgentTurnRequest, SingleAgentTurnResponse, SingleAgentTurnResult


class SingleAgentTurnEnvironmentServerConfig(BaseEnvironmentServerConfig):
    """Whom an episode is between, and the ways in which the agent is offered the environment's tools."""

    default_episode_timeout_seconds: PositiveFloat | None = 21_600
    cleanup_timeout_seconds: float = Field(default=180, gt=0)
    resources_server: ResourcesServerRef
    agent_server: AgentServerRef
    resources_tool_transports: list[Literal["direct_http", "mcp"]] = Field(default_factory=list)


class SingleAgentTurnEnvironmentServer(BaseEnvironmentServer[SingleAgentTurnRequest, SingleAgentTurnResponse]):
    config: SingleAgentTurnEnvironmentServerConfig

    request_model: ClassVar[type[Any]] = SingleAgentTurnRequest
    response_model: ClassVar[type[Any]] = SingleAgentTurnResponse
    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def run(self, request: SingleAgentTurnRequest, cleanup: CleanupContext) -> SingleAgentTurnResponse:
        """The verdict of one turn. A session that is open by then is closed, whatever fails."""
        turn = Turn(
            client=self.server_client,
            request=request,
            resources_server=self.config.resources_server.name,
            agent_server=self.config.agent_server.name,
            transports=self.config.resources_tool_transports,
        )
        offer = await turn.open_resources_session(cleanup)
        agent_session = await turn.open_agent_session(cleanup, offer)
        response = await turn.respond()
        await turn.close_agent_session(agent_session, response)
        verdict = await turn.verify(response)
        return SingleAgentTurnResponse(
            episode_id=request.episode_id,
            task_id=request.task.task_id,
            result=self._result({**verdict, "ng_agent_observations": turn.observations}, response),
        )

    def _result(self, verdict: dict[str, Any], response: dict[str, Any]) -> SingleAgentTurnResult:
        refuse_unmeasured(verdict, response)
        return SingleAgentTurnResult.model_validate(verdict)

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """The metrics of the resources server, which knows what its rewards mean."""
        answer = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(answer)
        return AggregateMetrics.model_validate(await get_response_json(answer))


if __name__ == "__main__":
    SingleAgentTurnEnvironmentServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SingleAgentTurnEnvironmentServer.run_webserver()
