"""A Switchyard routing proxy: the pass-through of `openai_model`, with the rollout told to the proxy as its session."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from fastapi import FastAPI
from pydantic import Field, PrivateAttr, model_validator

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, observability_enabled_from_config
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import DISALLOWED_PORTS_KEY_NAME
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.token_id_capture.config import token_id_capture_config
from responses_api_models.openai_model.pass_through import PassThroughModel, Upstream
from responses_api_models.switchyard_model.condition import write_condition, write_stats
from responses_api_models.switchyard_model.deployment import Proxy, start_proxy

SESSION_HEADER = "x-switchyard-session-id"

_logger = logging.getLogger("nemo_gym.switchyard_model")


class SwitchyardModelServerConfig(BaseResponsesAPIModelConfig):
    """Either the address of a running proxy, or a deployment (TOML) of which one is started beside this server.

    With `forward_session_id` the id of the rollout goes along in every header of `session_id_headers`, so that the
    proxy can keep a rollout with one model. `condition_dir` gets a record of the settings, with `proxy_provenance`, and
    at the end of the calls.
    """

    switchyard_base_url: str | None = None
    deployment: Path | None = None
    switchyard_model: str
    switchyard_api_key: str = "unused"
    proxy_port: int | None = None
    session_id_headers: list[str] = Field(default_factory=lambda: [SESSION_HEADER], min_length=1)
    forward_session_id: bool = True
    condition_dir: Path | None = None
    proxy_provenance: dict[str, Any] | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    default_headers: dict[str, str] = Field(default_factory=dict)
    max_concurrent_requests: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.switchyard_base_url is None) == (self.deployment is None):
            raise ValueError("give either switchyard_base_url or deployment")
        if self.deployment is not None and (self.num_workers or 1) > 1:
            raise ValueError("deployment starts a proxy of its own: num_workers has to be 1")
        return self


class SwitchyardModelServer(PassThroughModel):
    config: SwitchyardModelServerConfig

    _calls: Counter[str] = PrivateAttr(default_factory=Counter)
    _proxy: Proxy | None = PrivateAttr(default=None)

    def upstream(self) -> Upstream:
        config = self.config
        return Upstream(
            base_url=config.switchyard_base_url or "",
            api_key=config.switchyard_api_key,
            model=config.switchyard_model,
            extra_body=config.extra_body,
            default_headers=config.default_headers,
            max_concurrent_requests=config.max_concurrent_requests,
        )

    def setup_webserver(self) -> FastAPI:
        """The app; starts the proxy of a deployment first."""
        self._check_correlation()
        if self.config.deployment is not None:
            taken = self._global_config().get(DISALLOWED_PORTS_KEY_NAME)
            self._proxy = start_proxy(self.config.deployment, self.config.proxy_port, list(taken or []))
            self.config.switchyard_base_url = self._proxy.base_url
            self._connect(self.upstream())
        if self.config.condition_dir is not None:
            settings = self.config.model_dump(mode="json")
            write_condition(self.config.condition_dir, settings, self.config.deployment)
        app = super().setup_webserver()
        self._write_stats_at_shutdown(app)
        return app

    def _check_correlation(self) -> None:
        """Without correlation requests carry no rollout id that could be forwarded."""
        if not self.config.forward_session_id or self._correlates():
            return
        problem = (
            "forward_session_id needs rollout ids in the requests, and nothing asks for them: set "
            "observability_enabled (with model_call_capture_dir) or token_id_capture, or set forward_session_id to "
            "false"
        )
        if "forward_session_id" in self.config.model_fields_set:
            raise ConfigError(f"{self.config.name}: {problem}.")
        _logger.warning("%s: %s.", self.config.name, problem)

    def _correlates(self) -> bool:
        config = self._global_config()
        return observability_enabled_from_config(config) or token_id_capture_config(config).enabled

    def _global_config(self) -> Mapping[Any, Any]:
        config = getattr(self.server_client, "global_config_dict", None)
        return config if isinstance(config, Mapping) else {}

    def _write_stats_at_shutdown(self, app: FastAPI) -> None:
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(running: Any) -> AsyncIterator[Any]:
            async with inner(running) as state:
                yield state
            if self.config.condition_dir is not None:
                root = self._upstream.base_url.rstrip("/").removesuffix("/v1")
                write_stats(self.config.condition_dir, root, self._calls)
            if self._proxy is not None:
                self._proxy.stop()

        app.router.lifespan_context = lifespan

    def _client_of_call(self) -> NeMoGymAsyncOpenAI:
        rollout_id = current_rollout_id()
        if rollout_id is None or not self.config.forward_session_id:
            return self._client
        headers = {**self._client.default_headers, **dict.fromkeys(self.config.session_id_headers, rollout_id)}
        return self._client.model_copy(update={"default_headers": headers})

    async def _ask(self, create: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]) -> dict[str, Any]:
        self._calls["requests"] += 1
        try:
            return await super()._ask(create, request)
        except Exception:
            self._calls["errors"] += 1
            raise


if __name__ == "__main__":
    SwitchyardModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SwitchyardModelServer.run_webserver()
