"""Calling servers of a run by their names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, cast

from aiohttp import ClientResponse, ClientTimeout
from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict

from nemo_gym.config.instances import BaseServerConfig
from nemo_gym.config.keys import (
    ENVIRONMENT_SERVERS,
    HEAD_SERVER_KEY_NAME,
    OBSERVABILITY_ENABLED_KEY_NAME,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
    SERVER_TYPES,
)
from nemo_gym.serve import local
from nemo_gym.serve.correlation import current_rollout_id, maybe_rollout_id_from_run_body, rollout_path_prefix
from nemo_gym.serve.deadline import DeadlineExceededError, call_limit, lifted_deadline, seconds_left
from nemo_gym.serve.head_client import ServerStatus, probe
from nemo_gym.serve.in_flight import waiting_for, with_rollout
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.serve.process import missing_server
from nemo_gym.serve.retries import with_key
from nemo_gym.serve.stages import Stage, StageTimeoutError, stage_of, stage_timeouts
from nemo_gym.serve.whereabouts import Whereabouts, following
from nemo_gym.telemetry import is_span_group_enabled
from nemo_gym.telemetry.http_client import request_span

NEMO_GYM_MODEL_SERVER_NAME_ENV_VAR_NAME = "NEMO_GYM_MODEL_SERVER_NAME"
NEMO_GYM_MODEL_SERVER_BASE_URL_ENV_VAR_NAME = "NEMO_GYM_MODEL_SERVER_BASE_URL"

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
ANSWERS_ARE_REPEATED = frozenset({RESOURCES_SERVERS, RESPONSES_API_AGENTS, ENVIRONMENT_SERVERS})
"""Types of servers that recognise an idempotency key: those whose work has effects."""
_RELEASING_PATHS = frozenset({"/close_session", "/v1/agent_sessions/close", "/close"})
"""What was opened is closed although the rollout's time may be over."""
_MODEL_CALL_PATHS = frozenset({"/v1/responses", "/v1/chat/completions", "/v1/messages"})


@dataclass
class _Known:
    """What a client has found out in the config: types of servers, whether they repeat answers, how long they may
    take, who is observed."""

    types: dict[str, str | None] = field(default_factory=dict)
    repeating: dict[str, bool] = field(default_factory=dict)
    timeouts: dict[Stage, ClientTimeout | None] | None = None
    is_observed: bool | None = None


class BaseServerClient(BaseModel):
    """Calls the servers of a config by name; those in this very process and loop are called without a socket.

    Names are resolved to addresses once, unless servers move. What the network does is `_send`'s business.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: BaseServerConfig
    global_config_dict: DictConfig

    # Not pydantic's private attributes: reading one of those takes longer than what is done with it here.
    @cached_property
    def _server_base_urls(self) -> dict[str, str]:
        return {}

    @cached_property
    def _known(self) -> _Known:
        return _Known()

    @cached_property
    def _whereabouts(self) -> Whereabouts | None:
        return Whereabouts.of_run(self.global_config_dict, self.head_server_config)

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> ClientResponse:
        """Call a server of the run with aiohttp's options; a pydantic `json` is sent without its unset fields.

        Without a `timeout` the stage of the rollout that the call belongs to limits it: StageTimeoutError. A POST to a
        server that recognises repetitions gets an idempotency key, unless it has one: so a connection that breaks
        doesn't end the call, and its work is done once.
        """
        if url_path in _RELEASING_PATHS and seconds_left() is not None:
            with lifted_deadline():
                return await self.request(server_name, url_path, method, **kwargs)
        limit = None if "timeout" in kwargs else self._stage_limit(server_name, url_path, method)
        if limit is None:
            return await self._call(server_name, url_path, method, kwargs)
        stage, timeout = limit
        token = call_limit.set(timeout)
        try:
            return await self._call(server_name, url_path, method, kwargs)
        except TimeoutError as error:
            if isinstance(error, DeadlineExceededError):
                raise
            raise StageTimeoutError(stage, server_name, url_path, timeout.total or 0.0) from error
        finally:
            call_limit.reset(token)

    async def _call(self, server_name: str, url_path: str, method: str, kwargs: dict[str, Any]) -> ClientResponse:
        base_url = self._base_url_for_request(server_name)
        if isinstance(body := kwargs.get("json"), BaseModel):
            kwargs["json"] = body.model_dump(exclude_unset=True)
        kwargs = with_rollout(kwargs, url_path)
        with waiting_for(server_name, url_path):
            return await self._ask(server_name, base_url, url_path, method, kwargs)

    async def _ask(
        self, server_name: str, base_url: str, url_path: str, method: str, kwargs: dict[str, Any]
    ) -> ClientResponse:
        url_path = self._with_rollout_prefix(server_name, url_path, kwargs.get("json"))
        neighbour = local.find(server_name, base_url, kwargs)
        if neighbour is not None:
            answer = await _within_process(neighbour, method, url_path, kwargs)
            if answer.status not in _REDIRECTS:
                return cast(ClientResponse, answer)
        if method.upper() == "POST" and self._repeats_answers(server_name):
            kwargs["headers"] = with_key(kwargs.get("headers"))
        whereabouts = self._whereabouts
        if whereabouts is None or base_url != self._resolve_base_url(server_name):
            return await self._send(method, f"{base_url}{url_path}", server_name, kwargs)
        with following(whereabouts, server_name, base_url):
            return await self._send(method, f"{base_url}{url_path}", server_name, kwargs)

    async def get(self, server_name: str, url_path: str, **kwargs: Any) -> ClientResponse:
        """`request` with GET."""
        return await self.request(server_name, url_path, "GET", **kwargs)

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> ClientResponse:
        """`request` with POST."""
        return await self.request(server_name, url_path, "POST", **kwargs)

    def poll_for_status(self, server_name: str, *, timeout_seconds: float = 5) -> ServerStatus:
        """Whether a server, or `head_server`, answers; blocks, and any HTTP status means `success`."""
        if server_name == HEAD_SERVER_KEY_NAME:
            return probe(self._build_server_base_url(self.head_server_config), timeout_seconds)
        return probe(self._resolve_base_url(server_name), timeout_seconds)

    def base_url(self, server_name: str) -> str:
        """`http://host:port` of a server of the run; ConfigError when the config defines none of that name."""
        return self._resolve_base_url(server_name)

    def at(self, ports: Mapping[str, int]) -> Self:
        """A client that finds the named servers at other ports of their hosts, and all others where this one does."""
        moved = self.model_copy()
        moved._server_base_urls = {name: _with_port(self.base_url(name), port) for name, port in ports.items()}
        return moved

    async def _send(self, method: str, url: str, server_name: str, options: dict[str, Any]) -> ClientResponse:
        raise NotImplementedError

    def _resolve_base_url(self, server_name: str) -> str:
        base_urls = self._server_base_urls
        known = base_urls.get(server_name)
        if known is None:
            known = base_urls[server_name] = self._build_server_base_url(self._block_of(server_name))
        whereabouts = self._whereabouts
        return known if whereabouts is None else whereabouts.base_url(server_name, known)

    def _block_of(self, server_name: str) -> Any:
        entry = self.global_config_dict.get(server_name)
        if not isinstance(entry, DictConfig):
            raise missing_server(server_name, map(str, self.global_config_dict))
        implementations = next(iter(entry.values()))
        return next(iter(implementations.values()))

    def _build_server_base_url(self, server_config_dict: Any) -> str:
        return f"http://{server_config_dict.host}:{server_config_dict.port}"

    def _base_url_for_request(self, server_name: str) -> str:
        override = os.environ.get(NEMO_GYM_MODEL_SERVER_BASE_URL_ENV_VAR_NAME)
        if override and os.environ.get(NEMO_GYM_MODEL_SERVER_NAME_ENV_VAR_NAME) == server_name:
            return override
        return self._resolve_base_url(server_name)

    def _with_rollout_prefix(self, server_name: str, url_path: str, body: Any) -> str:
        """The path under the rollout's prefix where the callee records what it observes, else unchanged."""
        known = self._known
        if known.is_observed is None:
            known.is_observed = bool(self.global_config_dict.get(OBSERVABILITY_ENABLED_KEY_NAME))
        if not known.is_observed:
            return url_path
        return rollout_path_prefix(self._rollout_id_for(server_name, url_path.split("?", 1)[0], body)) + url_path

    def _rollout_id_for(self, server_name: str, path: str, body: Any) -> str | None:
        if path in _MODEL_CALL_PATHS and self._server_type(server_name) == RESPONSES_API_MODELS:
            return current_rollout_id()
        if path == "/verify" and self._server_type(server_name) == RESOURCES_SERVERS:
            return current_rollout_id() or maybe_rollout_id_from_run_body(body if isinstance(body, dict) else None)
        return None

    def _stage_limit(self, server_name: str, url_path: str, method: str) -> tuple[Stage, ClientTimeout] | None:
        stage = stage_of(self._server_type(server_name), url_path) if method == "POST" else None
        if stage is None:
            return None
        known = self._known
        if known.timeouts is None:
            known.timeouts = stage_timeouts(self.global_config_dict)
        timeout = known.timeouts[stage]
        return None if timeout is None else (stage, timeout)

    def _repeats_answers(self, server_name: str) -> bool:
        """Whether the server knows a call it has seen; several workers don't know of each other's."""
        repeating = self._known.repeating
        known = repeating.get(server_name)
        if known is None:
            is_ours = self._server_type(server_name) in ANSWERS_ARE_REPEATED
            workers = self._block_of(server_name).get("num_workers") if is_ours else None
            known = repeating[server_name] = is_ours and (workers or 1) <= 1
        return known

    def _server_type(self, server_name: str) -> str | None:
        types = self._known.types
        if server_name not in types:
            entry = self.global_config_dict.get(server_name)
            kind = next(iter(entry), None) if isinstance(entry, DictConfig) else None
            types[server_name] = str(kind) if kind in SERVER_TYPES else None
        return types[server_name]


def _with_port(base_url: str, port: int) -> str:
    return f"{base_url.rpartition(':')[0]}:{port}"


async def _within_process(
    neighbour: local.LocalServer, method: str, url_path: str, options: dict[str, Any]
) -> LocalResponse:
    if not is_span_group_enabled("http_client"):
        return await neighbour.request(method, url_path, **options)
    with request_span(method, neighbour.base_url + url_path, options, current_rollout_id()) as span:
        answer = await neighbour.request(method, url_path, **span.options)
        span.answered(answer.status)
        return answer
