"""A tutorial with state: each session has a counter of its own, and the reward is 1 when it ends up as it should."""

from typing import Annotated, ClassVar

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, ValidationError

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    ReverifyMode,
    SessionStore,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.verifiers.verdicts import verdict

Number = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""What every reader of JSON takes for the same whole number."""


class StatefulCounterResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED


class StatefulCounterSeedSessionRequest(BaseSeedSessionRequest):
    initial_count: Number


class IncrementCounterRequest(BaseModel):
    count: Number


class IncrementCounterResponse(BaseModel):
    success: bool


class GetCounterValueResponse(BaseModel):
    count: int


class StatefulCounterRunRequest(BaseRunRequest):
    initial_count: Number
    expected_count: int


class StatefulCounterVerifyRequest(StatefulCounterRunRequest, BaseVerifyRequest):
    pass


class StatefulCounterVerifyResponse(StatefulCounterVerifyRequest, BaseVerifyResponse):
    pass


class StatefulCounterResourcesServer(SimpleResourcesServer):
    config: StatefulCounterResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _counters: SessionStore[int] = PrivateAttr(default_factory=lambda: SessionStore(keep_after_verify=True))

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/increment_counter")(self.increment_counter)
        app.post("/get_counter_value")(self.get_counter_value)
        return app

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | StatefulCounterSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Begin the session's counter; one that has begun goes on. HTTPException 422 for an episode without a count."""
        self._counters.setdefault(request.session[SESSION_ID_KEY], _initial_count(body))
        return await super().seed_session(body)

    async def increment_counter(self, request: Request, body: IncrementCounterRequest) -> IncrementCounterResponse:
        """Add to the session's counter, which begins at 0 without a seed."""
        session_id = request.session[SESSION_ID_KEY]
        self._counters[session_id] = self._counters.get(session_id, 0) + body.count
        return IncrementCounterResponse(success=True)

    async def get_counter_value(self, request: Request) -> GetCounterValueResponse:
        """The session's counter."""
        return GetCounterValueResponse(count=self._counters.get(request.session[SESSION_ID_KEY], 0))

    async def verify(  # type: ignore[override]
        self, request: Request, body: StatefulCounterVerifyRequest
    ) -> StatefulCounterVerifyResponse:
        """Whether the session has a counter, and it is what it should be."""
        count = self._counters.get(request.session[SESSION_ID_KEY])
        return verdict(StatefulCounterVerifyResponse, body, reward=float(count == body.expected_count))


def _initial_count(body: ResourcesSeedSessionRequest | StatefulCounterSeedSessionRequest) -> int:
    if not isinstance(body, ResourcesSeedSessionRequest):
        return body.initial_count
    try:
        count: int = TypeAdapter(Number).validate_python(body.task_data.get("initial_count"))
    except ValidationError as error:
        raise HTTPException(422, f"task_data.initial_count: {error.errors(include_url=False)[0]['msg']}") from error
    return count


if __name__ == "__main__":
    StatefulCounterResourcesServer.run_webserver()
