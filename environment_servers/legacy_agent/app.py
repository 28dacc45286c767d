"""A relay to one agent: what comes in goes to it, what it answers goes back, nothing is read.

In a run of Gym's own this is only another name of the agent, without a process; see the README.
"""

import warnings
from typing import Any, ClassVar

from fastapi import FastAPI, Request, Response
from pydantic import Field, PositiveFloat

from nemo_gym.base_environment_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseEnvironmentServer,
    BaseEnvironmentServerConfig,
    Body,
    CleanupContext,
)
from nemo_gym.config_types import AgentServerRef
from nemo_gym.episode_types import BaseEpisodeRequest, BaseEpisodeResponse
from nemo_gym.server_utils import get_response_json, is_nemo_gym_fastapi_entrypoint, raise_for_status

_OF_THE_CONNECTION = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "host",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    }
)
_SET_BY_THE_SERVER = frozenset({"date", "server"})
_LIMITS = (
    "max_concurrent_episodes",
    "queue_timeout_seconds",
    "default_episode_timeout_seconds",
    "cleanup_timeout_seconds",
)


class LegacyAgentEnvironmentServerConfig(BaseEnvironmentServerConfig):
    """The limits are those of every environment server, and a relay applies none of them."""

    agent_server: AgentServerRef
    default_episode_timeout_seconds: PositiveFloat | None = 21_600
    cleanup_timeout_seconds: float = Field(default=180, gt=0)

    def model_post_init(self, context: Any, /) -> None:
        if ignored := [name for name in _LIMITS if name in self.model_fields_set]:
            warnings.warn(f"{self.name}: a legacy_agent ignores {', '.join(ignored)}", stacklevel=3)


class LegacyAgentEnvironmentServer(BaseEnvironmentServer[BaseEpisodeRequest[Any], BaseEpisodeResponse[Any]]):
    config: LegacyAgentEnvironmentServerConfig

    request_model: ClassVar[type[Any]] = BaseEpisodeRequest
    response_model: ClassVar[type[Any]] = BaseEpisodeResponse
    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    def setup_webserver(self) -> FastAPI:
        """An app that relays both routes."""
        app = FastAPI()
        app.post("/run")(self.relay)
        app.post("/aggregate_metrics")(self.relay)
        return app

    async def relay(self, request: Request) -> Response:
        """The agent's answer to the same request, whatever its status."""
        answer = await self.server_client.post(
            server_name=self.config.agent_server.name,
            url_path=request.url.path,
            data=await request.body(),
            headers={name: value for name, value in request.headers.items() if name not in _OF_THE_CONNECTION},
            cookies=request.cookies,
        )
        response = Response(await answer.read(), answer.status)
        hidden = _OF_THE_CONNECTION | _SET_BY_THE_SERVER
        for name, value in answer.headers.items():
            if name.lower() not in hidden:
                response.raw_headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        return response

    async def run(self, request: BaseEpisodeRequest[Any], cleanup: CleanupContext) -> BaseEpisodeResponse[Any]:
        """A relay runs no episodes itself."""
        raise NotImplementedError("a legacy_agent relays /run to its agent")

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """The agent's metrics."""
        answer = await self.server_client.post(
            server_name=self.config.agent_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(answer)
        return AggregateMetrics.model_validate(await get_response_json(answer))


if __name__ == "__main__":
    LegacyAgentEnvironmentServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = LegacyAgentEnvironmentServer.run_webserver()
