"""`vllm_model` with a vLLM server of its own, started on the GPUs of the Ray cluster before this one serves."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from fastapi import FastAPI
from pydantic import Field, PrivateAttr, model_validator

from nemo_gym.global_config import DISALLOWED_PORTS_KEY_NAME, RAY_HEAD_NODE_ADDRESS_KEY_NAME, find_open_port
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.local_vllm_model.engine_process import EngineProcess
from responses_api_models.local_vllm_model.serve_command import serve_command
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.settings import VLLMModelConfig

_SIZES = ("data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size")
_PACK_STRATEGY = "VLLM_RAY_DP_PACK_STRATEGY"
_INNER_CONFIG_PATH = "/get_inner_vllm_config"


class LocalVLLMModelConfig(VLLMModelConfig):
    """The keys of `vllm_model`, and what the engine is started with. A `base_url` means that it runs already."""

    NEEDS_ADDRESS: ClassVar[bool] = False

    base_url: list[str] = Field(default_factory=list)
    hf_home: str | None = None
    vllm_serve_kwargs: dict[str, Any] = Field(default_factory=dict)
    vllm_serve_env_vars: dict[str, str] = Field(default_factory=dict)
    ray_worker_py_executable: str | None = None
    show_vllm_engine_stats: bool = False
    debug: bool = False

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.base_url or self.endpoint_file is not None:
            return self
        missing = [name for name in _SIZES if name not in self.vllm_serve_kwargs]
        if missing:
            raise ValueError(f"vllm_serve_kwargs needs {', '.join(missing)}, or give the base_url of a running engine")
        if _PACK_STRATEGY not in self.vllm_serve_env_vars:
            raise ValueError(f"vllm_serve_env_vars needs {_PACK_STRATEGY}, for example strict")
        if (self.num_workers or 1) > 1:
            raise ValueError("a server that starts its own engine has one worker: leave num_workers out")
        return self


class LocalVLLMModel(VLLMModel):
    config: LocalVLLMModelConfig

    ray_enabled: ClassVar[bool | None] = True
    shareable: ClassVar[bool] = False
    non_generating_model_routes: ClassVar[frozenset[tuple[str, str]]] = frozenset({("GET", _INNER_CONFIG_PATH)})

    _engine: EngineProcess | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        """The app; starts the engine first and waits until it has loaded its model."""
        if not self.config.base_url and self.config.endpoint_file is None:
            self._start_engine()
        app = super().setup_webserver()
        app.get(_INNER_CONFIG_PATH)(self.get_inner_vllm_config)
        if self._engine is not None:
            _at_shutdown(app, self._engine)
        return app

    async def get_inner_vllm_config(self) -> dict[str, Any]:
        """How the engine itself is reached, for servers that share it."""
        return {"base_url": self.config.base_url, "api_key": self.config.api_key, "model": self.config.model}

    def _start_engine(self) -> None:
        config = self.config
        port = find_open_port(disallowed_ports=list(self._global_config(DISALLOWED_PORTS_KEY_NAME) or []))
        base_url = f"http://{config.host}:{port}/v1"
        self._engine = EngineProcess(f"the vLLM engine of {config.name}", self._command(port), self._variables())
        self._engine.wait_until_it_answers(f"{base_url}/models", {"Authorization": f"Bearer {config.api_key}"})
        self._engine.watch()
        config.base_url = [base_url]
        self._clients = [self._client_for(base_url)]

    def _command(self, port: int) -> list[str]:
        config = self.config
        python = config.ray_worker_py_executable or sys.executable
        own = {"host": config.host, "port": port, "disable_log_stats": None if config.show_vllm_engine_stats else True}
        defaults = {"distributed_executor_backend": "ray", "data_parallel_backend": "ray"}
        return serve_command(python, config.model, {**defaults, **config.vllm_serve_kwargs, **own})

    def _variables(self) -> dict[str, str]:
        config = self.config
        variables = {"VLLM_API_KEY": config.api_key}
        if config.hf_home:
            variables["HF_HOME"] = config.hf_home
        if config.debug:
            variables["VLLM_LOGGING_LEVEL"] = "DEBUG"
        address = self._global_config(RAY_HEAD_NODE_ADDRESS_KEY_NAME)
        if address:
            variables["RAY_ADDRESS"] = str(address)
        return {**variables, **config.vllm_serve_env_vars}

    def _global_config(self, key: str) -> Any:
        config = getattr(self.server_client, "global_config_dict", None)
        return config.get(key) if isinstance(config, Mapping) else None


def _at_shutdown(app: FastAPI, engine: EngineProcess) -> None:
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: Any) -> AsyncIterator[Any]:
        async with inner(running) as state:
            yield state
        engine.stop()

    app.router.lifespan_context = lifespan


if __name__ == "__main__":
    LocalVLLMModel.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = LocalVLLMModel.run_webserver()
