"""Agents: what turns a row and a model into a response, and runs the rollout around it."""

import functools
import math
import warnings
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from fastapi import Body, FastAPI, Request
from pydantic import BaseModel, Field, PrivateAttr, field_validator

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse, metrics_of
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, BaseRunServerInstanceConfig
from nemo_gym.global_config import (
    OBSERVABILITY_ENABLED_KEY_NAME,
    TOKEN_ID_CAPTURE_BLOCK,
    get_first_server_config_dict,
)
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body, rollout_context
from nemo_gym.serve.agent_sessions import (
    AGENT_SESSION_COOKIE_KEY,
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
    AgentSessions,
    AgentSessionSetupError,
    AgentSessionState,
    _AgentSessionRecord,
    session_marker,
    unique_by_name,
)
from nemo_gym.serve.correlation import RolloutIdGuard
from nemo_gym.serve.json_app import json_app
from nemo_gym.server_utils import (
    ROLLOUT_PATH_PREFIX,
    TOKEN_CAPTURE_PATH_SEGMENT,
    BaseServer,
    ServerClient,
    SimpleServer,
    apply_rollout_prefix,
    rollout_path_prefix,
)
from nemo_gym.telemetry import trace_fn
from nemo_gym.tool_access import ToolAccess

__all__ = [
    "AGENT_SESSION_COOKIE_KEY",
    "AgentCloseSessionRequest",
    "AgentCloseSessionResponse",
    "AgentSeedSessionRequest",
    "AgentSeedSessionResponse",
    "AgentSessionSetupError",
    "AgentSessionState",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseResponsesAPIAgent",
    "BaseResponsesAPIAgentConfig",
    "BaseRunRequest",
    "BaseVerifyResponse",
    "Body",
    "SimpleResponsesAPIAgent",
    "_AgentSessionRecord",
]

_Handler = Callable[..., Awaitable[Any]]


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    session_close_retry_window_seconds: float = Field(default=300, gt=0)
    skip_verification: bool = False
    skip_verification_reward: float = 0.0
    token_id_capture: bool = False
    tool_accesses: list[ToolAccess] = Field(default_factory=list)

    @field_validator("session_close_retry_window_seconds")
    @classmethod
    def require_finite_window(cls, seconds: float) -> float:
        if not math.isfinite(seconds):
            raise ValueError("must be a finite number of seconds")
        return seconds

    @field_validator("tool_accesses")
    @classmethod
    def require_unique_tool_names(cls, tool_accesses: list[ToolAccess]) -> list[ToolAccess]:
        return unique_by_name(tool_accesses)


class BaseResponsesAPIAgent(BaseServer):
    config: BaseResponsesAPIAgentConfig


class SimpleResponsesAPIAgent(BaseResponsesAPIAgent, AggregateMetricsMixin, SimpleServer):
    """An agent: implement `responses` (one activation) and `run` (a whole rollout)."""

    config: BaseResponsesAPIAgentConfig

    _session_records: dict[str, _AgentSessionRecord] = PrivateAttr(default_factory=dict)
    _closed_session_records: OrderedDict[str, _AgentSessionRecord] = PrivateAttr(default_factory=OrderedDict)
    _known_captures: tuple[bool, bool] | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        """The app with the routes every agent has; overrides add theirs to it."""
        app = json_app()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutIdGuard)
        responses = trace_fn("agent", "gym.agent.responses")(self.responses)
        prefix = f"/{ROLLOUT_PATH_PREFIX}/{{rollout_id}}"
        for path in ("", prefix, f"{prefix}/{TOKEN_CAPTURE_PATH_SEGMENT}"):
            app.post(f"{path}/v1/responses")(responses)
        app.post("/run")(self._within_its_rollout(trace_fn("rollout", "gym.rollout")(self.run)))
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.post("/v1/agent_sessions")(self.seed_agent_session)
        app.post("/v1/agent_sessions/close")(self.close_agent_session)
        return app

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Have the model work on the input until it is done."""

    @abstractmethod
    async def run(self, body: BaseRunRequest = Body()) -> BaseVerifyResponse:
        """One rollout: seed the environment, respond, verify."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """Metrics of a whole run, with this agent's hooks; empty when nothing was verified."""
        if self.config.skip_verification:
            warnings.warn(
                f"{self.config.name} runs with skip_verification, so its rewards mean nothing: no metrics.",
                RuntimeWarning,
                stacklevel=2,
            )
            return AggregateMetrics()
        return await metrics_of(self, body)

    def _within_its_rollout(self, run: _Handler) -> _Handler:
        @functools.wraps(run)
        async def run_in_context(*args: Any, **kwargs: Any) -> Any:
            bodies = (value for value in (*args, *kwargs.values()) if isinstance(value, BaseRunRequest))
            body = kwargs["body"] if "body" in kwargs else next(bodies, None)
            with rollout_context(self.rollout_id_from_run(body)):
                return await run(*args, **kwargs)

        return run_in_context

    # --- correlation: which model and tool calls belong to which rollout ---------------------------------------------

    def _model_call_capture_enabled(self) -> bool:
        return self._captures()[0]

    def _token_id_capture_enabled(self) -> bool:
        return self._captures()[1]

    def _capture_correlation_enabled(self) -> bool:
        return self._model_call_capture_enabled() or self._token_id_capture_enabled()

    def _captures(self) -> tuple[bool, bool]:
        """Whether model calls, and whether token ids, are recorded; kept once a real client has told."""
        # Asked for several times a rollout: pydantic's own way to a private attribute takes longer than the rest.
        private = self.__pydantic_private__
        if private is not None and (known := private.get("_known_captures")) is not None:
            return cast(tuple[bool, bool], known)
        config = getattr(self.server_client, "global_config_dict", None)
        captures = self._captures_of(config) if isinstance(config, Mapping) else (False, False)
        if type(self.server_client) is ServerClient:
            self._known_captures = captures
        return captures

    def _captures_of(self, config: Mapping[str, Any]) -> tuple[bool, bool]:
        given = config.get(TOKEN_ID_CAPTURE_BLOCK)
        block: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        takes_part = block.get("all_agents") or self.config.token_id_capture
        return bool(config.get(OBSERVABILITY_ENABLED_KEY_NAME)), bool(block.get("enabled") and takes_part)

    def rollout_id_from_run(self, body: Any) -> str | None:
        """The id under which calls of this rollout are recorded; None while nothing is."""
        if not self._capture_correlation_enabled():
            return None
        return maybe_rollout_id_from_run_body(body if isinstance(body, BaseModel | Mapping) else None)

    def url_path_for_run(self, url_path: str, body: Any) -> str:
        """A path of the model server or of this agent under the prefix of the rollout that `body` runs."""
        rollout_id = self.rollout_id_from_run(body)
        if rollout_id is None:
            return url_path
        return rollout_path_prefix(rollout_id, token_capture=self._token_id_capture_enabled()) + url_path

    def base_url_for_run(self, base_url: str, body: Any) -> str:
        """The same for a base URL."""
        token_capture = self._token_id_capture_enabled()
        return apply_rollout_prefix(base_url, self.rollout_id_from_run(body), token_capture=token_capture)

    def url_path_for_request(self, url_path: str, request: Request | None) -> str:
        """A path under the rollout prefix that an inbound request came with."""
        rollout_id = request.path_params.get("rollout_id") if request is not None else None
        if request is None or not isinstance(rollout_id, str):
            return url_path
        token_capture = f"/{TOKEN_CAPTURE_PATH_SEGMENT}/" in request.url.path
        return rollout_path_prefix(rollout_id, token_capture=token_capture) + url_path

    def resolve_model_base_url(self, model_server_name: str, rollout_id: str | None = None) -> str:
        """`http://host:port[/<rollout prefix>]/v1` of a model server, for harnesses that bring their own client."""
        block = get_first_server_config_dict(self.server_client.global_config_dict, model_server_name)
        base_url = self.server_client._build_server_base_url(block)
        return apply_rollout_prefix(base_url, rollout_id, token_capture=self._token_id_capture_enabled()) + "/v1"

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def seed_agent_session(self, request: Request, body: AgentSeedSessionRequest) -> AgentSeedSessionResponse:
        """Open a session for an episode; asking twice is fine."""
        if self.config.num_workers not in (None, 1):
            raise ValueError(f"agent sessions need num_workers=1, and {self.config.name} has {self.config.num_workers}")
        marker = self._agent_session_id_from_request(request)
        response = await self._sessions().seed(marker, body, self._seed_agent_session_state)
        request.session[AGENT_SESSION_COOKIE_KEY] = body.agent_session_id
        return response

    async def close_agent_session(self, request: Request, body: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        """Close a session; asking again within the retry window gives the same answer."""
        hook = type(self)._close_agent_session_state
        if hook is SimpleResponsesAPIAgent._close_agent_session_state:
            raise NotImplementedError(f"{type(self).__name__} keeps no agent sessions")
        marker = self._agent_session_id_from_request(request)
        response = await self._sessions().close(marker, body, self._close_agent_session_state)
        request.session[AGENT_SESSION_COOKIE_KEY] = body.agent_session_id
        return response

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> AgentSessionState:
        raise NotImplementedError(f"{type(self).__name__} keeps no agent sessions")

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        raise NotImplementedError(f"{type(self).__name__} keeps no agent sessions")

    def effective_tool_accesses(self, request: AgentSeedSessionRequest) -> list[ToolAccess]:
        """The configured accesses, those of the session in their place or after them."""
        accesses = (*self.config.tool_accesses, *request.tool_accesses)
        return list({access.name: access for access in accesses}.values())

    @staticmethod
    def _agent_session_id_from_request(request: Request | None) -> str | None:
        return session_marker(request)

    def _holds_sessions(self) -> bool:
        return type(self)._seed_agent_session_state is not SimpleResponsesAPIAgent._seed_agent_session_state

    def _require_agent_session(self, agent_session_id: str) -> AgentSessionState:
        return self._sessions().require(agent_session_id)

    def _locked_agent_session(self, session_id: str) -> AbstractAsyncContextManager[_AgentSessionRecord]:
        return self._sessions().locked(session_id)

    def _sessions(self) -> AgentSessions:
        window = self.config.session_close_retry_window_seconds
        release = self._close_agent_session_state
        return AgentSessions(self._session_records, self._closed_session_records, window, release)
