"""A tool that MCP clients can call too: the reward is 1 for the weather of the right city, looked up and told."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    ReverifyMode,
    SessionStore,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY

DEFAULT_CITY = "Paris"


class ExampleMCPWeatherResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED


class ExampleMCPWeatherGetWeatherRequest(BaseModel):
    city: str = Field(description="Name of the city")


class ExampleMCPWeatherGetWeatherResponse(BaseModel):
    weather: str


class ExampleMCPWeatherSeedSessionRequest(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")

    verifier_metadata: dict[str, Any] = Field(default_factory=dict)


class ExampleMCPWeatherVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    verifier_metadata: dict[str, Any] = Field(default_factory=dict)


class ExampleMCPWeatherVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    expected_weather: str
    tool_call_seen: bool
    final_response_mentions_weather: bool


@dataclass
class WeatherSession:
    """What a session is to find out, and the cities it has asked for."""

    expected_city: str = DEFAULT_CITY
    weather_calls: list[str] = field(default_factory=list)


class ExampleMCPWeatherResourcesServer(SimpleResourcesServer):
    config: ExampleMCPWeatherResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _sessions: SessionStore[WeatherSession] = PrivateAttr(default_factory=lambda: SessionStore(keep_after_verify=True))

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | ExampleMCPWeatherSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Open the session with the city it is about; an episode's, which may be seeded again, stays as it is."""
        session_id = request.session[SESSION_ID_KEY]
        if isinstance(body, ResourcesSeedSessionRequest):
            self._sessions.setdefault(session_id, WeatherSession(_expected_city(body.task_data)))
        else:
            self._sessions[session_id] = WeatherSession(_expected_city(body.model_dump()))
        return await super().seed_session(body)

    async def get_weather(
        self, request: Request, body: ExampleMCPWeatherGetWeatherRequest
    ) -> ExampleMCPWeatherGetWeatherResponse:
        """Look up the weather in a city."""
        session = self._sessions.setdefault(request.session[SESSION_ID_KEY], WeatherSession())
        session.weather_calls.append(body.city)
        return ExampleMCPWeatherGetWeatherResponse(weather=weather_in(body.city))

    async def verify(  # type: ignore[override]
        self, request: Request, body: ExampleMCPWeatherVerifyRequest
    ) -> ExampleMCPWeatherVerifyResponse:
        """Whether the session asked for its city, and the answer says what it heard."""
        session = self._sessions.get(request.session[SESSION_ID_KEY])
        if session is None:
            session = WeatherSession(_expected_city(body.model_dump()))
        expected = weather_in(session.expected_city)
        was_asked = session.expected_city.casefold() in (city.casefold() for city in session.weather_calls)
        is_told = expected.casefold() in said(body.response).casefold()
        found = {
            "reward": float(was_asked and is_told),
            "expected_weather": expected,
            "tool_call_seen": was_asked,
            "final_response_mentions_weather": is_told,
        }
        return ExampleMCPWeatherVerifyResponse.model_validate(body.model_dump() | found)


def weather_in(city: str) -> str:
    return f"The weather in {city} is sunny and 72 F."


def said(response: NeMoGymResponse) -> str:
    """Everything the assistant said, its parts joined by line breaks."""
    texts: list[Any] = []
    for item in response.output:
        if item.type == "message" and item.role == "assistant":
            parts = item.content
            texts += [parts] if isinstance(parts, str) else [getattr(part, "text", None) for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def _expected_city(fields: dict[str, Any]) -> str:
    """The city of a row, which has it in `verifier_metadata`, or of an episode's task data."""
    metadata = fields.get("verifier_metadata")
    found = metadata.get("expected_city") if isinstance(metadata, dict) else None
    return str(found or fields.get("expected_city") or DEFAULT_CITY)


if __name__ == "__main__":
    ExampleMCPWeatherResourcesServer.run_webserver()
