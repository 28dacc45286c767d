"""Resources servers: the tools and the verifier of an environment."""

import asyncio
from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from nemo_gym.config.errors import ConfigError
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.failure_kinds import validate_failure_kind
from nemo_gym.judge import judge_failsafe
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics
from nemo_gym.rollout_correlation import RolloutContextMiddleware
from nemo_gym.schema.sandbox_access import SandboxAccess
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.mcp_names import (
    _MCP_TOKEN_SALT,
    NEMO_GYM_MCP_METADATA_KEY,
    NEMO_GYM_MCP_SESSION_TOKEN_HEADER,
    RESERVED_MCP_TOOL_NAMES,
)
from nemo_gym.serve.off_loop import off_the_loop
from nemo_gym.serve.session_store import SessionExpiredError, SessionStore, after_close, after_verify, stores_of
from nemo_gym.server_utils import BaseRunServerInstanceConfig, BaseServer, SimpleServer
from nemo_gym.telemetry import trace_fn

if TYPE_CHECKING:
    from nemo_gym.mcp_auto_exposure import MCPTool

__all__ = [
    "NEMO_GYM_MCP_METADATA_KEY",
    "NEMO_GYM_MCP_SESSION_TOKEN_HEADER",
    "RESERVED_MCP_TOOL_NAMES",
    "_MCP_TOKEN_SALT",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseResourcesServer",
    "BaseResourcesServerConfig",
    "BaseRunRequest",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
    "MCPServerMetadata",
    "NeMoGymResponse",
    "NeMoGymResponseCreateParamsNonStreaming",
    "ResourcesCloseSessionRequest",
    "ResourcesCloseSessionResponse",
    "ResourcesSeedSessionRequest",
    "ResourcesSeedSessionResponse",
    "ResourcesVerifyRequest",
    "ReverifyMode",
    "SessionExpiredError",
    "SessionStore",
    "SimpleResourcesServer",
    "normalize_tool_name",
]


def normalize_tool_name(name: str, server_name: str | None = None) -> str:
    """A tool's own name without the `mcp__<server>__` that MCP clients put before it.

    With `server_name` only that server's prefix is taken off.
    """
    if not name.startswith("mcp__"):
        return name
    if server_name is not None:
        return name.removeprefix(f"mcp__{server_name}__")
    _, separator, tool = name.removeprefix("mcp__").partition("__")
    return tool if separator else name


class ReverifyMode(str, Enum):  # noqa: UP042 - the contract: members are plain text, also when formatted
    """Whether stored rollouts can be verified again without their session."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN

    expose_tools_over_mcp: bool = False


class BaseRunRequest(BaseModel):
    """One row of a data set, as an agent is asked to run it."""

    model_config = ConfigDict(populate_by_name=True)

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    capture_rollout_id: str | None = Field(default=None, alias="_ng_rollout_id", exclude=True)


class BaseVerifyRequest(BaseRunRequest):
    """The row with what the agent made of it."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """The verdict. A masked sample is unmeasured: it counts in no mean."""

    reward: float = Field(allow_inf_nan=False)
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None

    @field_validator("failure_kind")
    @classmethod
    def _warn_on_unregistered_failure_kind(cls, value: str | None) -> str | None:
        return validate_failure_kind(value)


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A verdict whose reward has named parts."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """Opens a session; servers that need something from the row add fields."""


class BaseSeedSessionResponse(BaseModel):
    """The session is open."""


class MCPServerMetadata(BaseModel):
    """Where a session's tools are served over MCP."""

    server_name: str
    url_path: str = "/mcp"
    transport: str = "http"
    headers: dict[str, str]


class ResourcesSeedSessionRequest(BaseModel):
    """Opens the session of an episode."""

    model_config = ConfigDict(extra="forbid")

    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, JsonValue]


class ResourcesSeedSessionResponse(BaseModel):
    model_config = ConfigDict(extra="forbid")

    resources_session_id: str
    resources_tools: MCPServerMetadata | None = None
    sandbox_access: SandboxAccess | None = None


VerificationInputT = TypeVar("VerificationInputT")


class ResourcesVerifyRequest(BaseModel, Generic[VerificationInputT]):
    model_config = ConfigDict(extra="forbid")

    episode_id: EpisodeId
    task_id: TaskId
    verification_input: VerificationInputT


class ResourcesCloseSessionRequest(BaseModel):
    """Ends the session of an episode."""

    model_config = ConfigDict(extra="forbid")

    resources_session_id: str
    episode_id: EpisodeId


class ResourcesCloseSessionResponse(BaseModel):
    model_config = ConfigDict(extra="forbid")

    resources_session_id: str


class BaseResourcesServer(BaseServer):
    config: BaseResourcesServerConfig


class SimpleResourcesServer(BaseResourcesServer, AggregateMetricsMixin, SimpleServer):
    """A resources server: implement `verify`, add tool routes in `setup_webserver`, keep state per session id.

    State kept in a `SessionStore` (a private attribute) is closed by itself, after `/verify` and `/close_session`.
    """

    REVERIFY_MODE: ClassVar[ReverifyMode | None] = None
    """Replaces the config's, where the server class is the better place to say it."""

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The app with the routes every resources server has; overrides add theirs to it."""
        app = json_app()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        app.post("/seed_session")(self.seed_session)
        self._claim_session_stores()
        app.post("/close_session")(after_close(self, self.close_resources_session))
        verify = trace_fn("verify", "gym.verify")(off_the_loop(self.verify))
        app.post("/verify")(after_verify(self, judge_failsafe(verify)))
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.get("/reverify_mode")(self.get_reverify_mode)
        return app

    def _claim_session_stores(self) -> None:
        """Have the stores of sessions name this server. ConfigError where its workers would each have their own."""
        stores = stores_of(self)
        if stores and (self.config.num_workers or 1) > 1:
            raise ConfigError(
                f"{self.config.name} keeps its sessions in memory, which several workers don't share: set its "
                f"num_workers to 1 (it is {self.config.num_workers}), or start more instances."
            )
        for store in stores:
            store.server = self.get_session_middleware_key()

    def _holds_sessions(self) -> bool:
        return ReverifyMode(self.REVERIFY_MODE or self.config.REVERIFY_MODE) is not ReverifyMode.STATELESS

    def normalize_tool_name(self, name: str) -> str:
        """A tool's own name, whatever an MCP client made of it."""
        return normalize_tool_name(name, self.config.name)

    def mcp_tools(self, harvested: list["MCPTool"], catchall: Any | None) -> list["MCPTool"] | None:
        """The tools to offer over MCP, chosen from the server's routes; none for None."""
        return harvested

    def mcp_allowed_tools_for_session(self, seed_body: dict[str, Any]) -> list[str] | None:
        """Names of the tools a session may use over MCP; all for None."""
        return None

    async def seed_session(
        self, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Prepare the state of a session."""
        if isinstance(body, ResourcesSeedSessionRequest):
            return ResourcesSeedSessionResponse(resources_session_id=body.resources_session_id)
        return BaseSeedSessionResponse()

    async def close_resources_session(self, body: ResourcesCloseSessionRequest) -> ResourcesCloseSessionResponse:
        """Drop the state of a session; closing twice, or what was never open, succeeds."""
        return ResourcesCloseSessionResponse(resources_session_id=body.resources_session_id)

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Score what the agent did. Written without `async` it runs in a thread; `verifiers.worker_pool` takes more."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Metrics of a whole run, with this server's hooks."""
        return await metrics_of(self, body)

    async def get_reverify_mode(self) -> str:
        """Whether this server can verify stored rollouts again."""
        return ReverifyMode(self.REVERIFY_MODE or self.config.REVERIFY_MODE).value


_METRIC_HOOKS = ("compute_metrics", "get_key_metrics", "compute_repeat_metrics")


async def metrics_of(server: AggregateMetricsMixin, body: AggregateMetricsRequest) -> AggregateMetrics:
    """Metrics of a run with the hooks a server overrides, computed off the event loop."""
    hooks = {
        f"{name}_fn": getattr(server, name)
        for name in _METRIC_HOOKS
        if getattr(type(server), name) is not getattr(AggregateMetricsMixin, name)
    }
    return await asyncio.to_thread(compute_aggregate_metrics, body.verify_responses, **hooks)
