"""Any OpenAI-compatible provider, asked in the dialect of the caller: nothing is converted."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig
from nemo_gym.openai_utils import MAX_NUM_TRIES
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.openai_model.pass_through import PassThroughModel, Upstream


class SimpleModelServerConfig(BaseResponsesAPIModelConfig):
    """`extra_body` lies under every request; `openai_model` replaces the model that a request names.

    `max_concurrent_requests` counts calls to the provider per server process. `drop_input_reasoning_items` is for
    providers that refuse to be shown reasoning again.
    """

    openai_base_url: str
    openai_api_key: str
    openai_model: str
    extra_body: dict[str, Any] = Field(default_factory=dict)
    openai_default_headers: dict[str, str] = Field(default_factory=dict)
    max_http_attempts: int = Field(default=MAX_NUM_TRIES, ge=1)
    max_concurrent_requests: int | None = Field(default=None, ge=1)
    drop_input_reasoning_items: bool = False


class SimpleModelServer(PassThroughModel):
    config: SimpleModelServerConfig

    def upstream(self) -> Upstream:
        config = self.config
        return Upstream(
            base_url=config.openai_base_url,
            api_key=config.openai_api_key,
            model=config.openai_model,
            extra_body=config.extra_body,
            default_headers=config.openai_default_headers,
            max_http_attempts=config.max_http_attempts,
            max_concurrent_requests=config.max_concurrent_requests,
            drop_input_reasoning_items=config.drop_input_reasoning_items,
        )


if __name__ == "__main__":
    SimpleModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SimpleModelServer.run_webserver()
