"""`vllm_model` for agents that shorten their history: exact prompt prefixes, and a count of tokens before a call."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError, model_validator

from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.vllm_model.app import VLLMModel
from responses_api_models.vllm_model.errors import MissingTokens
from responses_api_models.vllm_model.settings import VLLMModelConfig
from responses_api_models.vllm_model.tokens import Tokens

PREFIX_KEY = "required_prefix_token_ids"
_PREFIX = TypeAdapter(list[int])


class VLLMModelWithCompactionConfig(VLLMModelConfig):
    """The keys of `vllm_model`, without the paths that don't report the prompt they used."""

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        if self.use_completions_api or self.is_responses_native:
            raise ValueError("use_completions_api and is_responses_native aren't for vllm_model_with_compaction")
        return self


class VLLMModelWithCompaction(VLLMModel):
    config: VLLMModelWithCompactionConfig

    non_generating_model_routes: ClassVar[frozenset[tuple[str, str]]] = frozenset({("POST", "/tokenize")})

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/tokenize")(self.tokenize)
        return app

    async def responses_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:
        """`/v1/responses`, whose body may name `required_prefix_token_ids` that the prompt has to begin with."""
        return await super().responses_dispatch(request, _take_prefix(request, body))

    async def chat_completions_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:
        """`/v1/chat/completions`, likewise."""
        return await super().chat_completions_dispatch(request, _take_prefix(request, body))

    async def tokenize(self, request: Request, body: dict[str, Any] = Body()) -> dict[str, Any]:
        """The prompt's token ids of a Responses or chat request, without generating anything: `{"tokens": […]}`."""
        body = _take_prefix(request, body)
        try:
            if "messages" in body:
                params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body)
            else:
                asked = NeMoGymResponseCreateParamsNonStreaming.model_validate(body)
                params = self._converter.responses_to_chat_completion_create_params(asked)
        except ValidationError as error:
            raise _invalid(error, body) from error
        given = {name: getattr(params, name) for name in params.model_fields_set}
        engine_body = self._preprocess_chat_completion_create_params(request, given)
        return {"tokens": await super()._tokenize_prompt(self._resolve_client(request), engine_body)}

    def _preprocess_chat_completion_create_params(self, request: Request, body_dict: dict[str, Any]) -> dict[str, Any]:
        body = super()._preprocess_chat_completion_create_params(request, body_dict)
        prefix = getattr(request.state, PREFIX_KEY, None)
        return body if prefix is None else {**body, PREFIX_KEY: prefix}

    async def _tokenize_prompt(self, client: NeMoGymAsyncOpenAI, body: dict[str, Any]) -> list[int]:
        raise MissingTokens(
            "The engine's answer has no prompt token ids, and asking for them afterwards could differ from the prompt "
            "that was used: set request_prompt_and_generation_token_ids to true, or use an engine that returns them."
        )

    def _check_tokens(self, body: dict[str, Any], found: Tokens) -> None:
        prefix = body.get(PREFIX_KEY)
        if prefix and (found.prompt or [])[: len(prefix)] != prefix:
            raise MissingTokens(f"The engine's prompt doesn't begin with the {len(prefix)} {PREFIX_KEY} it was given.")


def _take_prefix(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """The body without its required prefix, which is kept with the request."""
    if PREFIX_KEY not in body:
        return body
    rest = {key: value for key, value in body.items() if key != PREFIX_KEY}
    if body[PREFIX_KEY] is not None:
        try:
            setattr(request.state, PREFIX_KEY, _PREFIX.validate_python(body[PREFIX_KEY], strict=True))
        except ValidationError as error:
            raise _invalid(error, body, PREFIX_KEY) from error
    return rest


def _invalid(error: ValidationError, body: Any, *place: str) -> RequestValidationError:
    details = [{**item, "loc": ("body", *place, *item["loc"])} for item in error.errors()]
    return RequestValidationError(details, body=body)


if __name__ == "__main__":
    VLLMModelWithCompaction.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = VLLMModelWithCompaction.run_webserver()
