"""A model server whose upstream speaks the caller's dialect: what is asked and answered goes through as it is."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    MAX_NUM_TRIES,
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    checked_answer,
)


@dataclass(frozen=True)
class Upstream:
    """Where requests go, under what they are laid, and how many may be there at a time (None: any number)."""

    base_url: str
    api_key: str
    model: str
    extra_body: dict[str, Any] = field(default_factory=dict)
    default_headers: dict[str, str] = field(default_factory=dict)
    max_http_attempts: int = MAX_NUM_TRIES
    max_concurrent_requests: int | None = None
    drop_input_reasoning_items: bool = False


def drop_empty_tools(body: dict[str, Any]) -> None:
    """Removes an empty list of tools, which some engines refuse, and what makes no sense without tools."""
    if body.get("tools") == []:
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            body.pop(key, None)


class PassThroughModel(SimpleResponsesAPIModel):
    """`/responses` for Responses and Messages callers, `/chat/completions` for chat callers; nothing is converted."""

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _upstream: Upstream = PrivateAttr()
    _client: NeMoGymAsyncOpenAI = PrivateAttr()
    _turn: AbstractAsyncContextManager[Any] = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        limit = self.upstream().max_concurrent_requests
        self._turn = nullcontext() if limit is None else asyncio.Semaphore(limit)
        self._connect(self.upstream())
        super().model_post_init(context)

    @abstractmethod
    def upstream(self) -> Upstream:
        """What this server's config says about its upstream."""

    def _connect(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._client = NeMoGymAsyncOpenAI(
            base_url=upstream.base_url,
            api_key=upstream.api_key,
            max_http_attempts=upstream.max_http_attempts,
            default_headers=upstream.default_headers,
        )

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """The upstream's own answer to a Responses request."""
        request = self._upstream_body(body)
        if not isinstance(body.input, str):
            request["input"] = self._upstream_items(body.input, request["input"])
        answer = await self._ask(self._client_of_call().create_response, request)
        return self._response_of(body, answer)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """The upstream's own answer to a chat completion request."""
        answer = await self._ask(self._client_of_call().create_chat_completion, self._upstream_body(body))
        return checked_answer(NeMoGymChatCompletion, answer, base_url=self._upstream.base_url, what="chat completion")

    def _client_of_call(self) -> NeMoGymAsyncOpenAI:
        """The client for the call being made."""
        return self._client

    async def _ask(self, create: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            return await create(**request)

    def _response_of(self, body: NeMoGymResponseCreateParamsNonStreaming, answer: dict[str, Any]) -> NeMoGymResponse:
        """The checked answer to `body`."""
        return checked_answer(NeMoGymResponse, answer, base_url=self._upstream.base_url, what="Response")

    def _upstream_items(self, items: list[Any], dumped: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The dumped items, each with the type its class implies: only messages may go untyped to a provider."""
        kept = []
        for item, data in zip(items, dumped, strict=True):
            if self._upstream.drop_input_reasoning_items and item.type == "reasoning":
                continue
            kept.append(data if "type" in data or "role" in data else {"type": item.type, **data})
        return kept

    def _upstream_body(self, body: BaseModel) -> dict[str, Any]:
        request = self._upstream.extra_body | body.model_dump(exclude_unset=True)
        drop_empty_tools(request)
        request["model"] = self._upstream.model
        return request
