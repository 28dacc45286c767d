"""Any OpenAI-compatible provider, asked in the dialect of the caller: nothing is converted."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar

from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    MAX_NUM_TRIES,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint


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


class SimpleModelServer(SimpleResponsesAPIModel):
    config: SimpleModelServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _client: NeMoGymAsyncOpenAI = PrivateAttr()
    _turn: AbstractAsyncContextManager[Any] = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        config = self.config
        self._client = NeMoGymAsyncOpenAI(
            base_url=config.openai_base_url,
            api_key=config.openai_api_key,
            max_http_attempts=config.max_http_attempts,
            default_headers=config.openai_default_headers,
        )
        limit = config.max_concurrent_requests
        self._turn = nullcontext() if limit is None else asyncio.Semaphore(limit)
        super().model_post_init(context)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """The provider's own answer to a Responses request."""
        request = self._upstream_body(body)
        if not isinstance(body.input, str):
            request["input"] = self._upstream_items(body.input, request["input"])
        async with self._turn:
            answer = await self._client.create_response(**request)
        return NeMoGymResponse.model_validate(answer)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """The provider's own answer to a chat completion request."""
        async with self._turn:
            answer = await self._client.create_chat_completion(**self._upstream_body(body))
        return NeMoGymChatCompletion.model_validate(answer)

    def _upstream_items(self, items: list[Any], dumped: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The dumped items, each with the type its class implies: only messages may go untyped to a provider."""
        kept = []
        for item, data in zip(items, dumped, strict=True):
            if self.config.drop_input_reasoning_items and item.type == "reasoning":
                continue
            kept.append(data if "type" in data or "role" in data else {"type": item.type, **data})
        return kept

    def _upstream_body(self, body: BaseModel) -> dict[str, Any]:
        request = self.config.extra_body | body.model_dump(exclude_unset=True)
        if request.get("tools") == []:
            # Some engines refuse an empty list, and a choice or a permission with nothing to choose from.
            for key in ("tools", "tool_choice", "parallel_tool_calls"):
                request.pop(key, None)
        request["model"] = self.config.openai_model
        return request


if __name__ == "__main__":
    SimpleModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SimpleModelServer.run_webserver()
