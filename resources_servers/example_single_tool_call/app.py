"""The smallest environment with a tool: the reward is 1 when the model asks for the weather."""

from pathlib import Path
from typing import ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifier_fixture import VerifierFixture
from resources_servers.example_single_tool_call.sessions import Sessions

TOOL = "get_weather"


class SimpleWeatherResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class GetWeatherRequest(BaseModel):
    city: str


class GetWeatherResponse(BaseModel):
    city: str
    weather_description: str


class WeatherVerifier:
    """Scores a response by itself, without a server."""

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        called = any(item.type == "function_call" and item.name == TOOL for item in body.response.output)
        return BaseVerifyResponse(
            responses_create_params=body.responses_create_params, response=body.response, reward=float(called)
        )


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=WeatherVerifier,
    request_model=BaseVerifyRequest,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


class SimpleWeatherResourcesServer(SimpleResourcesServer):
    config: SimpleWeatherResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _sessions: Sessions = PrivateAttr(default_factory=Sessions)
    _verifier: WeatherVerifier = PrivateAttr(default_factory=WeatherVerifier)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post(f"/{TOOL}")(self.get_weather)
        return app

    async def get_weather(self, body: GetWeatherRequest) -> GetWeatherResponse:
        return GetWeatherResponse(city=body.city, weather_description=f"The weather in {body.city} is cold.")

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return await self._verifier.verify(body)

    async def seed_session(
        self, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Open an episode's session. What isn't of an episode keeps no state."""
        if isinstance(body, ResourcesSeedSessionRequest):
            self._sessions.open(body.resources_session_id, body.episode_id, body.task_id)
        return await super().seed_session(body)

    async def close_resources_session(self, body: ResourcesCloseSessionRequest) -> ResourcesCloseSessionResponse:
        self._sessions.close(body.resources_session_id, body.episode_id)
        return await super().close_resources_session(body)


if __name__ == "__main__":
    SimpleWeatherResourcesServer.run_webserver()
