"""A tutorial with several rewards: one for the form of a tool call, one for its arguments, one for being right."""

from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.long_texts import read_apart, size_of
from nemo_gym.verifiers.tool_calls import ToolCall, calls_of, recorded
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from resources_servers.example_tool_call_multireward.components import components_of, expected_call


class ToolCallMultiRewardResourcesServerConfig(BaseResourcesServerConfig):
    """`declared_tools_only`: the arguments of a tool the row doesn't offer are never valid. `strict_types`: `true` is
    not 1, and a call whose arguments can't be read is never right."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    declared_tools_only: bool = False
    strict_types: bool = False


class GetWeatherRequest(BaseModel):
    city: str


class GetWeatherResponse(BaseModel):
    city: str
    weather_description: str


class ToolCallMultiRewardRunRequest(BaseRunRequest):
    expected_call: dict[str, Any] = {}


class ToolCallMultiRewardVerifyRequest(ToolCallMultiRewardRunRequest, BaseVerifyRequest):
    pass


class ToolCallMultiRewardVerifyResponse(ToolCallMultiRewardVerifyRequest, BaseMultiRewardVerifyResponse):
    """The parts of the reward twice: together, as trainers read them, and each by itself, as metrics do."""

    format: float = 0.0
    schema_valid: float = 0.0
    correctness: float = 0.0
    predicted_calls: list[dict[str, Any]] = []


class ToolCallMultiRewardResourcesServer(SimpleResourcesServer):
    config: ToolCallMultiRewardResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def get_weather(self, body: GetWeatherRequest) -> GetWeatherResponse:
        """Look up the weather in a city."""
        return GetWeatherResponse(city=body.city, weather_description=f"The weather in {body.city} is sunny.")

    async def verify(self, body: ToolCallMultiRewardVerifyRequest) -> ToolCallMultiRewardVerifyResponse:  # type: ignore[override]
        kind = ToolCallMultiRewardVerifyResponse
        try:
            expected = expected_call(body.expected_call)
        except RowError as error:
            return verdict(kind, body, unmeasured(error), reward_components={})
        return await read_apart(size_of(body.response), self._scored, body, expected)

    def _scored(
        self, body: ToolCallMultiRewardVerifyRequest, expected: ToolCall | None
    ) -> ToolCallMultiRewardVerifyResponse:
        components = components_of(
            body.response,
            body.responses_create_params.tools or (),
            expected,
            declared_only=self.config.declared_tools_only,
            strict_types=self.config.strict_types,
        )
        return verdict(
            ToolCallMultiRewardVerifyResponse,
            body,
            components,
            reward=sum(components.values()),
            reward_components=components,
            predicted_calls=recorded(calls_of(body.response)),
        )


if __name__ == "__main__":
    ToolCallMultiRewardResourcesServer.run_webserver()
