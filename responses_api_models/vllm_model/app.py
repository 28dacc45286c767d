"""A policy model served by vLLM: chat completions, with exact token ids where a trainer wants them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from fastapi import FastAPI, Request
from pydantic import BaseModel, PrivateAttr
from starlette.responses import Response

from nemo_gym.base_responses_api_model import (
    Body,
    ModelExecutionOutcome,
    SimpleResponsesAPIModel,
    start_model_execution,
)
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    checked_answer,
)
from nemo_gym.responses_converter import (
    ResponsesConverter,
    ResponsesConverterState,
    VLLMConverter,
    VLLMConverterResponsesToChatCompletionsState,
    split_responses_input_output_items,
)
from nemo_gym.server_utils import SESSION_ID_KEY, ClientResponseError, is_nemo_gym_fastapi_entrypoint
from nemo_gym.token_id_capture.errors import ExternalCaptureError
from responses_api_models.vllm_model import completions, overflow, tokens
from responses_api_models.vllm_model.audio import wants_audio
from responses_api_models.vllm_model.endpoints import EndpointFile, engine_index
from responses_api_models.vllm_model.errors import RefusedRequest
from responses_api_models.vllm_model.reasoning import with_reasoning_in_content
from responses_api_models.vllm_model.request_body import EngineBody, ends_with_nothing_said
from responses_api_models.vllm_model.settings import VLLMModelConfig
from responses_api_models.vllm_model.token_capture import PrefixSupply, external_handler

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.external_capture import ExternalCaptureHandler

__all__ = [
    "ResponsesConverter",
    "ResponsesConverterState",
    "VLLMConverter",
    "VLLMConverterResponsesToChatCompletionsState",
    "VLLMModel",
    "VLLMModelConfig",
    "split_responses_input_output_items",
]

_REMEMBERED_SESSIONS = 65_536

_logger = logging.getLogger("nemo_gym.vllm_model")


class VLLMModel(SimpleResponsesAPIModel):
    config: VLLMModelConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _TOKENIZE_CHAT_FIELDS: ClassVar[tuple[str, ...]] = (
        "model",
        "messages",
        "tools",
        "chat_template_kwargs",
        "mm_processor_kwargs",
        "required_prefix_token_ids",
        "add_generation_prompt",
        "continue_final_message",
    )

    _clients: list[NeMoGymAsyncOpenAI] = PrivateAttr()
    _session_id_to_client: OrderedDict[str, NeMoGymAsyncOpenAI] = PrivateAttr(default_factory=OrderedDict)
    _converter: ResponsesConverter = PrivateAttr()
    _engine_body: EngineBody = PrivateAttr()
    _renderer: completions.PromptRenderer = PrivateAttr()
    _endpoint_file: EndpointFile | None = PrivateAttr(default=None)
    _prefix_supply_counts: Counter[str] = PrivateAttr(default_factory=Counter)
    _prefix_supply: PrefixSupply | None = PrivateAttr(default=None)
    _external_capture: ExternalCaptureHandler | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        self._post_init()
        super().model_post_init(context)

    def _post_init(self) -> None:
        config = self.config
        self._clients = [self._client_for(url) for url in config.base_url]
        self._converter = self.get_converter()
        self._engine_body = EngineBody(config)
        if config.supply_prefix_token_ids:
            self._prefix_supply = PrefixSupply(self._prefix_supply_counts)
        self._external_capture = external_handler(config, getattr(self.server_client, "global_config_dict", None))
        self._renderer = completions.PromptRenderer()
        if config.render_chat_template:
            name = config.tokenizer or config.model
            self._renderer = completions.PromptRenderer.with_template_of(
                name, trust_remote_code=config.trust_remote_code
            )
        if config.endpoint_file is not None:
            self._endpoint_file = EndpointFile(
                config.endpoint_file, config.endpoint_check_interval_s, config.endpoint_stale_grace_s
            )

    def get_converter(self) -> ResponsesConverter:
        """How Responses requests become chat requests."""
        return ResponsesConverter(
            return_token_id_information=self.config.return_token_id_information,
            uses_reasoning_parser=self.config.uses_reasoning_parser,
        )

    def setup_exception_middleware(self, app: FastAPI) -> None:
        if self.config.propagate_context_overflow_errors:
            app.add_middleware(overflow.PropagateOverflow)
        super().setup_exception_middleware(app)

    # --- the three dialects -----------------------------------------------------------------------------------------

    async def responses(  # type: ignore[override]
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """A Responses answer, from a chat completion unless the engine speaks Responses itself."""
        if self.config.is_responses_native:
            return await self._native_response(request, body)
        chat_body = self._converter.responses_to_chat_completion_create_params(body)
        completion = await self.chat_completions(request, chat_body)
        return self._converter.chat_completion_to_response(body, completion)

    async def chat_completions(  # type: ignore[override]
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """A chat completion; reasoning is in its content as think tags, tokens (if wanted) on the message."""
        outcome = start_model_execution(request, upstream_attempted=False)
        given = {name: getattr(body, name) for name in body.model_fields_set}
        if wants_audio(given.get("metadata")):
            engine_body = await asyncio.to_thread(self._preprocess_chat_completion_create_params, request, given)
        else:
            engine_body = self._preprocess_chat_completion_create_params(request, given)
        if not self.config.sequential_reasoning_allowed and ends_with_nothing_said(engine_body):
            _note_local(outcome, "sequential_reasoning_not_allowed")
            return self._local_answer("content_filter")
        outcome["upstream_attempted"] = True
        client = self._resolve_client(request)
        try:
            completion = await self._complete(client, engine_body, given)
        except ClientResponseError as error:
            _note_upstream(outcome, error.status)
            if self.config.propagate_context_overflow_errors or not overflow.is_overflow(error, engine_body):
                raise
            _note_local(outcome, "context_length_exceeded")
            _logger.warning("Context overflow, answered as cut off: %s", overflow.reason_of(error))
            return self._local_answer("length")
        _note_upstream(outcome, 200)
        return checked_answer(NeMoGymChatCompletion, completion, base_url=client.base_url, what="chat completion")

    async def _native_response(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        outcome = start_model_execution(request, upstream_attempted=True)
        data = {**(self.config.extra_body or {}), **body.model_dump(exclude_unset=True), "model": self.config.model}
        data |= self.config.sampling_overrides or {}
        client = self._resolve_client(request)
        try:
            answer = await client.create_response(**data)
        except ClientResponseError as error:
            _note_upstream(outcome, error.status)
            raise
        _note_upstream(outcome, 200)
        return checked_answer(NeMoGymResponse, answer, base_url=client.base_url, what="Response")

    def _local_answer(self, finish_reason: str) -> NeMoGymChatCompletion:
        return NeMoGymChatCompletion.model_validate(overflow.local_completion(self.config.model, finish_reason))

    # --- calls whose tokens the engine's workers stage ----------------------------------------------------------------

    async def _invoke_chat_completions(
        self, request: Request, params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> Any:
        completion = await super()._invoke_chat_completions(request, params)
        await self._publish(completion)
        return completion

    async def _finalize_served_response(self, response: Any) -> Any:
        await self._publish(response)
        return await super()._finalize_served_response(response)

    async def _stream_served_response(self, response: Any, events: Iterable[str | bytes]) -> Any:
        await self._publish(response)
        return await super()._stream_served_response(response, events)

    async def _publish(self, served: Any) -> None:
        """Note a staged call as its client sees it, unless that is done."""
        if self._external_capture is None:
            return
        if isinstance(served, BaseModel):
            served = served.model_dump(mode="json", by_alias=True)
        elif isinstance(served, Response):
            served = orjson.loads(served.body) if served.body else {}
        await self._external_capture.finalize_response(served)

    # --- the engine -------------------------------------------------------------------------------------------------

    def _preprocess_chat_completion_create_params(self, request: Request, body_dict: dict[str, Any]) -> dict[str, Any]:
        """The body for the engine's chat completions, from the fields that a caller set."""
        body = self._engine_body.of(body_dict)
        if self.config.forward_session_id_as_conversation_id:
            body["conversation_params"] = {"conversation_id": request.session[SESSION_ID_KEY]}
        if self._external_capture is not None:
            try:
                return self._external_capture.prepare_request(body)
            except ExternalCaptureError as error:
                raise RefusedRequest(str(error)) from error
        return body if self._prefix_supply is None else self._prefix_supply.enter(body)

    async def _complete(
        self, client: NeMoGymAsyncOpenAI, body: dict[str, Any], given: dict[str, Any]
    ) -> dict[str, Any]:
        """A chat completion whose first choice is ready for the converter."""
        if self.config.use_completions_api:
            return await self._complete_text(client, body, given)
        completion = await client.create_chat_completion(**body)
        if self._external_capture is not None:
            self._external_capture.prepare_response(completion)
        message = _first_message(completion)
        with_reasoning_in_content(
            message,
            uses_parser=self.config.uses_reasoning_parser,
            continues=bool(body.get("continue_final_message")),
        )
        if self.config.return_token_id_information:
            found = tokens.take_chat_tokens(completion)
            if self._prefix_supply is not None:
                self._prefix_supply.check(body, found.prompt)
            if found.prompt is None:
                found.prompt = await self._tokenize_prompt(client, body)
            self._check_tokens(body, found)
            found.put_on(message)
        return completion

    async def _tokenize_prompt(self, client: NeMoGymAsyncOpenAI, body: dict[str, Any]) -> list[int]:
        """The prompt's ids when an answer doesn't have them."""
        answer = await client.create_tokenize(**self._get_tokenize_chat_body(body))
        ids: list[int] = answer["tokens"]
        return ids

    def _check_tokens(self, body: dict[str, Any], found: tokens.Tokens) -> None:
        """A look at the tokens of an answer to `body`; raise MissingTokens to refuse them."""

    async def _complete_text(
        self, client: NeMoGymAsyncOpenAI, body: dict[str, Any], given: dict[str, Any]
    ) -> dict[str, Any]:
        if self._renderer.is_slow:
            prompt = await asyncio.to_thread(self._renderer.render, body)
        else:
            prompt = self._renderer.render(body)
        extra = self._engine_body.extra_body(given) | (self.config.sampling_overrides or {})
        request = completions.completion_body(body, prompt, extra)
        if self.config.return_token_id_information:
            request |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
        answer = await client.create_completion(**request)
        completion = completions.as_chat_completion(answer)
        if self.config.return_token_id_information:
            found = tokens.take_completion_tokens(answer["choices"][0], completion)
            if found.prompt is None:
                found.prompt = (await client.create_tokenize(model=self.config.model, prompt=prompt))["tokens"]
            found.put_on(completion["choices"][0]["message"])
        return completion

    def _get_tokenize_chat_body(self, create_params: dict[str, Any]) -> dict[str, Any]:
        """The fields of a chat request that decide its prompt."""
        return {key: create_params[key] for key in self._TOKENIZE_CHAT_FIELDS if key in create_params}

    def _client_for(self, url: str) -> NeMoGymAsyncOpenAI:
        config = self.config
        return NeMoGymAsyncOpenAI(
            base_url=url,
            api_key=config.api_key,
            default_headers=config.default_headers,
            max_connection_retries=None if config.endpoint_file is None else config.endpoint_connection_retries,
        )

    def _resolve_client(self, request: Request) -> NeMoGymAsyncOpenAI:
        """The engine of the caller's session."""
        self._follow_endpoint_file()
        session_id: str = request.session[SESSION_ID_KEY]
        client = self._session_id_to_client.get(session_id)
        if client is None:
            client = self._clients[engine_index(session_id, len(self._clients))]
            self._session_id_to_client[session_id] = client
            if len(self._session_id_to_client) > _REMEMBERED_SESSIONS:
                self._session_id_to_client.popitem(last=False)
        return client

    def _follow_endpoint_file(self) -> None:
        if self._endpoint_file is None:
            return
        url = self._endpoint_file.changed_url(time.monotonic())
        if url is not None and [url] != [client.base_url for client in self._clients]:
            print(f"[vllm_model] the engine is now at {url}", flush=True)
            self._clients = [self._client_for(url)]
            self._session_id_to_client.clear()


def _note_upstream(outcome: ModelExecutionOutcome, status: int) -> None:
    outcome["response_source"], outcome["upstream_status_code"] = "upstream", status


def _note_local(outcome: ModelExecutionOutcome, reason: str) -> None:
    outcome["response_source"], outcome["local_response_reason"] = "local", reason


def _first_message(completion: dict[str, Any]) -> dict[str, Any]:
    """The first choice's message, made there if the engine sent none."""
    choices = completion.get("choices")
    if not choices:
        raise ValueError("the engine's chat completion has no choices")
    message: dict[str, Any] = choices[0].get("message") or {"role": "assistant", "content": None}
    choices[0]["message"] = message
    return message


if __name__ == "__main__":
    VLLMModel.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = VLLMModel.run_webserver()
