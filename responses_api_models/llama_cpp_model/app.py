"""A small model on the CPU of this machine, so that everything can be tried without a key, a GPU or a download."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import Field, PrivateAttr

from nemo_gym.base_responses_api_model import (
    BaseResponsesAPIModelConfig,
    Body,
    SimpleResponsesAPIModel,
    start_model_execution,
)
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.llama_cpp_model.engine import Engine, EngineSettings, available_cores
from responses_api_models.llama_cpp_model.engine_client import ContextOverflow, EngineClient
from responses_api_models.llama_cpp_model.exact_tokens import ExactTokens
from responses_api_models.llama_cpp_model.weights import find_weights
from responses_api_models.vllm_model.overflow import local_completion

_FORWARDED = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "max_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "logprobs",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "stop",
        "seed",
        "n",
        "chat_template_kwargs",
    }
)


class LlamaCppModelConfig(BaseResponsesAPIModelConfig):
    """The embedded engine. Without `model_path` it is the small model that comes with the component.

    With one slot and no prompt cache (the default) the same request gets the same answer to the last bit; more slots
    compute that many requests together, and near ties between tokens may then fall either way.
    """

    model_path: str | None = None
    model: str | None = None
    context_tokens: int = Field(default=4096, ge=256)
    slots: int = Field(default=1, ge=1, le=64)
    threads: int | None = Field(default=None, ge=1)
    cache_prompt: bool = False
    seed: int | None = 42
    default_max_output_tokens: int = Field(default=512, ge=1)
    return_token_id_information: bool = False
    extra_body: dict[str, Any] = Field(default_factory=dict)


class LlamaCppModel(SimpleResponsesAPIModel):
    config: LlamaCppModelConfig

    ray_enabled: ClassVar[bool | None] = False

    _converter: ResponsesConverter = PrivateAttr()
    _engine: Engine = PrivateAttr()
    _client: EngineClient = PrivateAttr()
    _model: str = PrivateAttr(default="")
    _has_seen_tools: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any) -> None:
        self._converter = ResponsesConverter(
            return_token_id_information=self.config.return_token_id_information, uses_reasoning_parser=True
        )
        super().model_post_init(context)

    def setup_webserver(self) -> FastAPI:
        """The app; loads the model, which is why it isn't done in the constructor."""
        self._start_engine()
        app = super().setup_webserver()
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def with_engine(app: FastAPI) -> AsyncIterator[Any]:
            try:
                async with inner(app) as state:
                    yield state
            finally:
                await self._client.close()
                self._engine.stop()

        app.router.lifespan_context = with_engine
        return app

    def _start_engine(self) -> None:
        config = self.config
        weights = find_weights(config.model_path)
        self._model = config.model or weights.stem
        self._engine = Engine.start(
            EngineSettings(weights, config.context_tokens, config.slots, config.threads or available_cores())
        )
        self._client = EngineClient(self._engine.address, self._engine.api_key, config.slots)
        print(
            f"{self._model} runs here, on the CPU, for demonstration: its scores say nothing about a model worth "
            "evaluating or training.",
            flush=True,
        )

    async def responses(  # type: ignore[override]
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """A Responses answer, from a chat completion of the engine."""
        chat_body = self._converter.responses_to_chat_completion_create_params(body)
        completion = await self.chat_completions(request, chat_body)
        return self._converter.chat_completion_to_response(body, completion)

    async def chat_completions(  # type: ignore[override]
        self, request: Request, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """The engine's chat completion; a prompt that doesn't fit the context is answered as cut off."""
        outcome = start_model_execution(request, upstream_attempted=True)
        wants_tokens = self.config.return_token_id_information
        engine_body = self._engine_body(body)
        await self._warn_of_tools(engine_body)
        try:
            completion, tokens = await self._client.chat(engine_body, with_tokens=wants_tokens)
        except ContextOverflow:
            outcome["response_source"], outcome["local_response_reason"] = "local", "context_length_exceeded"
            return NeMoGymChatCompletion.model_validate(local_completion(self._model, "length"))
        outcome["response_source"], outcome["upstream_status_code"] = "upstream", 200
        completion["model"] = self._model
        completion.pop("timings", None)
        if tokens is not None:
            _put_tokens(completion["choices"][0], tokens, keep_logprobs=bool(body.logprobs))
        return NeMoGymChatCompletion.model_validate(completion)

    async def _warn_of_tools(self, engine_body: dict[str, Any]) -> None:
        """Say once, when tools are offered for the first time, that the model never hears of them."""
        tools = engine_body.get("tools")
        if not tools or self._has_seen_tools:
            return
        self._has_seen_tools = True
        if not await self._client.shows_tools(tools):
            print(
                f"Warning: {self._model} can't call tools: its chat template leaves them out, so rollouts that need "
                "them get no calls. Name a model that can by --model-type, or by model_path.",
                flush=True,
            )

    def _engine_body(self, body: NeMoGymChatCompletionCreateParamsNonStreaming) -> dict[str, Any]:
        """What a caller set, as far as the engine knows it."""
        given = {name: getattr(body, name) for name in body.model_fields_set}
        given = {name: value for name, value in given.items() if value is not None}
        limit = given.get("max_tokens", given.get("max_completion_tokens", self.config.default_max_output_tokens))
        request = {**self.config.extra_body, **{name: given[name] for name in _FORWARDED & given.keys()}}
        request |= {"max_tokens": limit, "cache_prompt": self.config.cache_prompt}
        if self.config.seed is not None:
            request.setdefault("seed", self.config.seed)
        if not request.get("tools"):
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                request.pop(name, None)
        if request.get("logprobs") or self.config.return_token_id_information:
            # The engine leaves log-probs out unless it may name at least one alternative.
            request["top_logprobs"] = max(1, request.get("top_logprobs", 1))
        return request


def _put_tokens(choice: dict[str, Any], tokens: ExactTokens, *, keep_logprobs: bool) -> None:
    """Makes the answer's message the training variant."""
    if not keep_logprobs:
        choice.pop("logprobs", None)
    choice["message"] |= {
        "prompt_token_ids": tokens.prompt,
        "generation_token_ids": tokens.generation,
        "generation_log_probs": tokens.logprobs,
    }


if __name__ == "__main__":
    LlamaCppModel.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = LlamaCppModel.run_webserver()
