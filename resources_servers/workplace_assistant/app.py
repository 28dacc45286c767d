"""An office with a mailbox, a calendar, customers and tasks: the reward is 1 when it ends up as it should.

What the model did and what should have been done are each replayed on an untouched office, and the two are compared.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

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
from nemo_gym.verifier_fixture import server_fixture
from nemo_gym.verifiers.response_text import function_calls
from nemo_gym.verifiers.verdicts import verdict
from resources_servers.workplace_assistant.utils import SCHEMAS, ToolEnvironment


class WorkbenchResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class WorkbenchRequest(BaseModel):
    """The arguments of a tool, whichever it is."""

    model_config = ConfigDict(extra="allow")


class WorkbenchResponse(BaseModel):
    """What a tool found, or the reason why it found nothing, as the model reads it."""

    output: Any = None


class WorkbenchTask(BaseModel):
    """`ground_truth` lists the calls that should have been made: `name`, and `arguments` as JSON text."""

    ground_truth: list[dict[str, Any]] | str
    id: int | None = None
    category: str | None = None
    environment_name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def take_from_verifier_metadata(cls, fields: Any) -> Any:
        """Rows may keep the fields there."""
        metadata = fields.get("verifier_metadata") if isinstance(fields, Mapping) else None
        return {**metadata, **fields} if isinstance(metadata, Mapping) else fields


class WorkbenchRunRequest(WorkbenchTask, BaseRunRequest):
    pass


class WorkbenchVerifyRequest(WorkbenchRunRequest, BaseVerifyRequest):
    pass


class WorkbenchVerifyResponse(WorkbenchTask, BaseVerifyResponse):
    pass


class WorkbenchResourcesServer(SimpleResourcesServer):
    config: WorkbenchResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _sessions: SessionStore[ToolEnvironment] = PrivateAttr(default_factory=SessionStore)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/{tool}")(self.call_tool)
        return app

    def mcp_tools(self, harvested: list[Any], catchall: Any | None) -> list[Any] | None:
        """The tools of the office by name."""
        if catchall is None:
            return harvested
        return [catchall.tool(name, schema["parameters"], schema["description"]) for name, schema in SCHEMAS.items()]

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Give the session an untouched office; an episode's, which may be seeded again, stays as it is."""
        session_id = request.session[SESSION_ID_KEY]
        if isinstance(body, ResourcesSeedSessionRequest):
            self._sessions.setdefault(session_id, ToolEnvironment())
        else:
            self._sessions[session_id] = ToolEnvironment()
        return await super().seed_session(body)

    async def call_tool(self, tool: str, request: Request, body: WorkbenchRequest) -> WorkbenchResponse:
        """Use a tool of the session's office; mistakes are told to the model. HTTPException 400 without a seed."""
        environment = self._sessions.get(request.session[SESSION_ID_KEY])
        if environment is None:
            raise HTTPException(400, "Session not initialized: call /seed_session first.")
        try:
            return WorkbenchResponse(output=await environment.call(tool, body.model_extra or {}))
        except Exception as error:
            return WorkbenchResponse(output=f"Error executing tool '{tool}': {error}")

    async def verify(self, body: WorkbenchVerifyRequest) -> WorkbenchVerifyResponse:  # type: ignore[override]
        """Whether the office would look the same after what was done and after what should have been."""
        made = [(call.name, call.arguments) for call in function_calls(body.response)]
        truth = body.ground_truth if isinstance(body.ground_truth, list) else []
        wanted = [(call.get("name"), call.get("arguments")) for call in truth]
        is_right = (await replayed(made)).office.is_equal((await replayed(wanted)).office)
        return verdict(WorkbenchVerifyResponse, body, reward=float(is_right))


async def replayed(calls: Iterable[tuple[Any, Any]]) -> ToolEnvironment:
    """An untouched office after these calls, each a tool's name and its arguments; those that fail change nothing."""
    environment = ToolEnvironment()
    for name, arguments in calls:
        try:
            if not environment.is_reading(name):
                await environment.call(name, json.loads(arguments) if isinstance(arguments, str) else arguments)
        except Exception:
            continue
    return environment


VERIFIER_FIXTURE = server_fixture(
    WorkbenchResourcesServer, WorkbenchVerifyRequest, Path(__file__).parent / "tests" / "verifier_cases.jsonl"
)


if __name__ == "__main__":
    WorkbenchResourcesServer.run_webserver()
