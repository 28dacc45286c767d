"""A model server whose upstream only has Chat Completions: the other dialects are converted."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, ClassVar

from pydantic import PrivateAttr

from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from responses_api_models.openai_model.pass_through import drop_empty_tools


class ChatBackedModel(SimpleResponsesAPIModel):
    """Implement `_complete`; set up with `_use` in `model_post_init`."""

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _converter: ResponsesConverter = PrivateAttr()
    _semaphore: asyncio.Semaphore = PrivateAttr()
    _model: str = PrivateAttr()
    _extra_body: dict[str, Any] = PrivateAttr()

    def _use(
        self, *, model: str, concurrency: int, extra_body: dict[str, Any], uses_reasoning_parser: bool = True
    ) -> None:
        """The model to ask for, calls at a time, what lies under every request, and whether think tags are read."""
        self._converter = ResponsesConverter(
            return_token_id_information=False, uses_reasoning_parser=uses_reasoning_parser
        )
        self._semaphore = asyncio.Semaphore(concurrency)
        self._model, self._extra_body = model, extra_body

    @abstractmethod
    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The upstream's chat completion for a body, as plain data."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """A Responses answer made of a chat completion."""
        completion = await self.chat_completions(self._converter.responses_to_chat_completion_create_params(body))
        return self._converter.chat_completion_to_response(body, completion)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """The upstream's chat completion."""
        request = self._upstream_body(body)
        async with self._semaphore:
            answer = await self._complete(request)
        return NeMoGymChatCompletion.model_validate(answer)

    def _upstream_body(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> dict[str, Any]:
        request = self._extra_body | body.model_dump(exclude_unset=True)
        drop_empty_tools(request)
        request["model"] = self._model
        return request
