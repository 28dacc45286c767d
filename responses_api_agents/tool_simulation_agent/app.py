"""The agent of tasks that ask for the next step only: the model is called once, and the tools it asks for are not."""

from typing import Any, ClassVar, Literal

from fastapi import Request

from nemo_gym.base_responses_api_agent import AggregateMetrics, AggregateMetricsRequest, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ResourcesServerRef
from responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
)


class ToolSimulationAgentConfig(SimpleAgentConfig):
    resources_server: ResourcesServerRef
    execute_tools: Literal[False] = False


class ToolSimulationAgent(SimpleAgent):
    config: ToolSimulationAgentConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def run(  # type: ignore[override]
        self, request: Request, body: SimpleAgentRunRequest = Body()
    ) -> SimpleAgentVerifyResponse:
        """Have the model answer the row, and the answer verified: there is no session, as nothing is done in one."""
        return await self._run_seeded(self.config.resources_server.name, body, body.model_dump(), {})

    async def _verify(self, resources_server: str, verification: dict[str, Any], cookies: dict[str, str]) -> Any:
        return await super()._verify(resources_server, verification, {})

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """Its own, whatever the resources server would make of the rewards."""
        return await SimpleResponsesAPIAgent.aggregate_metrics(self, body)


if __name__ == "__main__":
    ToolSimulationAgent.run_webserver()
