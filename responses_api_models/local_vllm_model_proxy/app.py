"""The engine of a `local_vllm_model` under other settings: another temperature, no reasoning, token ids, …"""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import Field

from nemo_gym.config_types import ModelServerRef
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.settings import VLLMModelConfig

POLL_SECONDS = 10.0
_ANSWER_TIMEOUT_SECONDS = 5.0


class LocalVLLMModelProxyConfig(VLLMModelConfig):
    """The keys of `vllm_model`; address, key and model are those of the engine of `model_server`."""

    NEEDS_ADDRESS: ClassVar[bool] = False

    base_url: list[str] = Field(default_factory=list)
    api_key: str = ""
    model: str = ""
    model_server: ModelServerRef


class LocalVLLMModelProxy(VLLMModel):
    config: LocalVLLMModelProxyConfig

    def setup_webserver(self) -> FastAPI:
        """The app; waits until the other server is up, however long its model takes to load."""
        name = self.config.model_server.name
        while (inner := self._inner_config(name)) is None:
            print(f"Waiting for {name}, whose engine {self.config.name} shares", flush=True)
            threading.Event().wait(POLL_SECONDS)
        self.config.base_url = [inner["base_url"]] if isinstance(inner["base_url"], str) else inner["base_url"]
        self.config.api_key, self.config.model = inner["api_key"], inner["model"]
        self._post_init()
        return super().setup_webserver()

    def _inner_config(self, name: str) -> dict[str, Any] | None:
        """What the other server says about its engine; None until it does."""
        if self.server_client.poll_for_status(name) != "success":
            return None
        url = f"{self.server_client._resolve_base_url(name)}/get_inner_vllm_config"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_SECONDS) as reply:
                inner: dict[str, Any] = json.loads(reply.read())
        except OSError:
            return None
        return inner


if __name__ == "__main__":
    LocalVLLMModelProxy.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = LocalVLLMModelProxy.run_webserver()
