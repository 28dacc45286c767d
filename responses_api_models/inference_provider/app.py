"""Hosted inference providers with an OpenAI-compatible Chat Completions API."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field, PrivateAttr

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.inference_provider.chat_backed import ChatBackedModel
from responses_api_models.vllm_model.reasoning import separate_reasoning, with_reasoning_in_content


class InferenceProviderModelServerConfig(BaseResponsesAPIModelConfig):
    """`model` replaces what a request names; `extra_body` lies under every request.

    With `uses_reasoning_parser` reasoning that the provider returns in a field of its own becomes think tags (and from
    there reasoning items), and the think blocks of earlier turns are not sent again.
    """

    base_url: str
    api_key: str
    model: str
    uses_reasoning_parser: bool = False
    num_concurrent_requests: int = Field(default=1000, ge=1)
    extra_body: dict[str, Any] = Field(default_factory=dict)


class InferenceProviderModelServer(ChatBackedModel):
    config: InferenceProviderModelServerConfig

    _client: NeMoGymAsyncOpenAI = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        config = self.config
        self._client = NeMoGymAsyncOpenAI(base_url=config.base_url, api_key=config.api_key)
        self._use(
            model=config.model,
            concurrency=config.num_concurrent_requests,
            extra_body=config.extra_body,
            uses_reasoning_parser=config.uses_reasoning_parser,
        )
        super().model_post_init(context)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """A Responses answer, dated here: not every provider dates its completions."""
        response = await super().responses(body)
        response.created_at = int(time.time())
        return response

    def _upstream_body(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> dict[str, Any]:
        request = super()._upstream_body(body)
        if self.config.uses_reasoning_parser:
            request["messages"] = [dict(message) for message in request["messages"]]
            for message in request["messages"]:
                if message.get("role") == "assistant":
                    separate_reasoning(message, "both", resend=False)
        return request

    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.create_chat_completion(**body)
        if self.config.uses_reasoning_parser:
            for choice in answer.get("choices") or ():
                if choice.get("message"):
                    with_reasoning_in_content(choice["message"], uses_parser=True, continues=False)
        return answer


if __name__ == "__main__":
    InferenceProviderModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = InferenceProviderModelServer.run_webserver()
