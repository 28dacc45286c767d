"""Model servers: one model behind the Responses, Chat Completions and Messages APIs."""

import functools
import inspect
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import orjson
from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError, model_validator
from starlette.responses import Response

from nemo_gym.config_types import BaseRunServerInstanceConfig
from nemo_gym.global_config import OBSERVABILITY_ENABLED_KEY_NAME
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_correlation import RolloutContextMiddleware, maybe_rollout_id_from_run_body
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.model_requests import ModelExecutionOutcome, NonGeneratingRequest, start_model_execution
from nemo_gym.serve.replay import chat_failure_frames, event_stream, replayed
from nemo_gym.serve.token_capture import captured, install_token_capture
from nemo_gym.server_utils import BaseServer, SimpleServer
from nemo_gym.telemetry import trace_fn
from nemo_gym.token_id_capture.current import active_call

__all__ = [
    "BaseResponsesAPIModel",
    "BaseResponsesAPIModelConfig",
    "Body",
    "ModelCallCaptureConfig",
    "ModelExecutionOutcome",
    "NonGeneratingRequest",
    "SimpleResponsesAPIModel",
    "install_model_call_capture",
    "maybe_rollout_id_from_run_body",
    "observability_enabled_from_config",
    "start_model_execution",
]

_Params = TypeVar("_Params", bound=BaseModel)


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    token_id_capture_non_generating_requests: list[NonGeneratingRequest] = Field(default_factory=list)


class ModelCallCaptureConfig(BaseModel):
    """Whether model calls are recorded, and the absolute folder the records go to."""

    observability_enabled: bool = False
    model_call_capture_dir: Path | None = None

    @model_validator(mode="after")
    def validate_capture_dir(self) -> Self:
        directory = self.model_call_capture_dir
        if self.observability_enabled and (directory is None or not directory.is_absolute()):
            raise ValueError(
                "observability_enabled needs model_call_capture_dir, an absolute path that every server can write to"
            )
        return self


def observability_enabled_from_config(global_config_dict: Any) -> bool:
    """Whether a global config asks for model calls to be recorded; False for what is no config."""
    return isinstance(global_config_dict, Mapping) and bool(global_config_dict.get(OBSERVABILITY_ENABLED_KEY_NAME))


def install_model_call_capture(
    app: Any,
    config: ModelCallCaptureConfig,
    *,
    model_server_name: str | None = None,
    global_config_dict: Any = None,
    num_workers: int | None = None,
    non_generating_requests: frozenset[tuple[str, str]] = frozenset(),
) -> None:
    """Strip the rollout prefix of requests, and record the model calls of the rollouts it names."""
    install_token_capture(
        app, global_config_dict, num_workers=num_workers, non_generating_requests=non_generating_requests
    )
    app.add_middleware(RolloutContextMiddleware)


class BaseResponsesAPIModel(BaseServer):
    config: BaseResponsesAPIModelConfig


class SimpleResponsesAPIModel(BaseResponsesAPIModel, SimpleServer):
    """A model server: implement `chat_completions` and `responses`; either may take the `request` as well."""

    config: BaseResponsesAPIModelConfig

    non_generating_model_routes: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    """(METHOD, path) of routes of this class that run no model."""

    def setup_webserver(self) -> FastAPI:
        """The app with the three APIs; overrides add theirs to it."""
        app = json_app()
        self.setup_session_middleware(app)
        self._install_capture(app)
        for path, name in (
            ("/v1/chat/completions", "chat_completions_dispatch"),
            ("/v1/responses", "responses_dispatch"),
            ("/v1/messages", "messages"),
        ):
            span = f"gym.model.{name.removesuffix('_dispatch')}"
            app.post(path)(trace_fn("model_call", span)(getattr(self, name)))
        return app

    def _install_capture(self, app: FastAPI) -> None:
        config = getattr(self.server_client, "global_config_dict", None)
        settings = ModelCallCaptureConfig.model_validate(config if isinstance(config, Mapping) else {})
        configured = self.config.token_id_capture_non_generating_requests
        install_model_call_capture(
            app,
            settings,
            model_server_name=self.config.name,
            global_config_dict=config,
            num_workers=self.config.num_workers,
            non_generating_requests=self.non_generating_model_routes
            | {(route.method, route.path) for route in configured},
        )

    # --- hooks ------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """Answer a chat completion request."""

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Answer a Responses request."""

    async def _finalize_served_response(self, response: Any) -> Any:
        """A last look at what is about to be sent."""
        return response

    async def _stream_served_response(self, response: Any, events: Iterable[str | bytes]) -> Any:
        """A finished `response` replayed as server-sent events."""
        return event_stream(events)

    # --- the Responses API ------------------------------------------------------------------------------------------

    async def responses_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:
        """`/v1/responses`: streamed when `stream` is true."""
        if body.get("stream"):
            from nemo_gym.responses_streaming import (
                sanitize_streaming_responses_body,
                validate_streaming_responses_params,
            )

            clean, ns_map = sanitize_streaming_responses_body(body)
            try:
                params = validate_streaming_responses_params(clean)
            except ValidationError as error:
                raise _invalid(error, body) from error
            return await self._stream_responses(request, params, ns_map)
        params = _validated(NeMoGymResponseCreateParamsNonStreaming, body)
        response = await self._invoke_responses(request, params)
        return await self._finalize_served_response(_orjson_dispatch_response(response))

    async def _stream_responses(
        self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming, ns_map: dict[str, tuple[str, str]]
    ) -> Any:
        from nemo_gym.responses_streaming import synthesize_responses_failure_sse, synthesize_responses_sse

        try:
            response = await self._invoke_responses(request, params)
        except Exception as error:
            return event_stream(synthesize_responses_failure_sse(str(error)))
        return await self._stream_served_response(response, synthesize_responses_sse(response, ns_map))

    async def _invoke_responses(self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming) -> Any:
        return await self._call(self.responses, request, params)

    # --- the Chat Completions API -----------------------------------------------------------------------------------

    async def chat_completions_dispatch(self, request: Request, body: dict[str, Any] = Body()) -> Any:
        """`/v1/chat/completions`: streamed when `stream` is literally true."""
        if body.get("stream") is True:
            from nemo_gym.chat_streaming import sanitize_streaming_chat_body, synthesize_chat_completion_sse

            clean, include_usage = sanitize_streaming_chat_body(body)
            params = _validated(NeMoGymChatCompletionCreateParamsNonStreaming, clean, include_url=False)
            return await replayed(
                self._invoke_chat_completions(request, params),
                lambda completion: synthesize_chat_completion_sse(completion, include_usage),
                chat_failure_frames,
            )
        params = _validated(NeMoGymChatCompletionCreateParamsNonStreaming, body, include_url=False)
        completion = await self._invoke_chat_completions(request, params)
        return await self._finalize_served_response(_orjson_dispatch_response(completion))

    async def _invoke_chat_completions(
        self, request: Request, params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> Any:
        return await self._call(self.chat_completions, request, params)

    # --- the Messages API -------------------------------------------------------------------------------------------

    async def messages(self, request: Request, body: dict[str, Any] = Body()) -> Any:
        """`/v1/messages`: answered through the Responses API; streamed when `stream` is true."""
        from nemo_gym.anthropic_converter import AnthropicConverter

        converter = AnthropicConverter()
        try:
            params = converter.anthropic_request_to_responses(body)
        except (NotImplementedError, LookupError, TypeError, ValueError) as error:
            return _anthropic_error(400, "invalid_request_error", str(error) or repr(error))
        response = await self._invoke_responses(request, params)
        if isinstance(response, Response):
            return response
        model = body.get("model") or _field(response, "model")
        message = converter.responses_to_anthropic_response(response, model)
        if body.get("stream"):
            return await self._stream_served_response(response, converter.anthropic_response_to_sse(message))
        return await self._finalize_served_response(_orjson_dispatch_response(message))

    async def _call(self, hook: Any, request: Request, params: BaseModel) -> Any:
        if active_call.get() is not None:
            return await captured(lambda: self._run_hook(hook, request, params), params)
        return await self._run_hook(hook, request, params)

    async def _run_hook(self, hook: Any, request: Request, params: BaseModel) -> Any:
        if _wants_request(getattr(hook, "__func__", hook)):
            return await hook(request=request, body=params)
        return await hook(body=params)


@functools.lru_cache(maxsize=256)
def _wants_request(hook: Any) -> bool:
    return "request" in inspect.signature(hook).parameters


def _validated(params_model: type[_Params], body: dict[str, Any], *, include_url: bool = True) -> _Params:
    try:
        return params_model.model_validate(body)
    except ValidationError as error:
        raise _invalid(error, body, include_url=include_url) from error


def _invalid(error: ValidationError, body: Any, *, include_url: bool = True) -> RequestValidationError:
    """The 422 of a body that was taken as a plain object first."""
    details = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=include_url)]
    return RequestValidationError(details, body=body)


def _orjson_dispatch_response(content: Any) -> Any:
    """A response that carries `content`, encoded once; responses pass through."""
    if isinstance(content, Response):
        return content
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json", by_alias=True)
    return Response(orjson.dumps(content), media_type="application/json")


def _anthropic_error(status: int, kind: str, message: str) -> Response:
    content = orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})
    return Response(content, status_code=status, media_type="application/json")


def _field(response: Any, name: str) -> Any:
    return response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)
