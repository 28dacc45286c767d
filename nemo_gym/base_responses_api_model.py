"""Model servers: one model behind the Responses, Chat Completions and Messages APIs."""

import functools
import inspect
import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import orjson
from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from nemo_gym.capture.middleware import ModelCallMiddleware
from nemo_gym.capture.readback import (
    aggregate_model_call_metrics,
    clear_captures,
    merge_capture,
    read_available_model_call_records,
    read_model_call_records,
)
from nemo_gym.capture.reassembly import reconstruct_streamed_response as _reconstruct_streamed_response
from nemo_gym.capture.records import ModelCallRecord, aggregate_model_call_records, build_model_call_record
from nemo_gym.capture.settings import (
    ModelCallCaptureConfig,
    make_capture_store,
    model_call_capture_dirs_from_config,
    observability_enabled_from_config,
)
from nemo_gym.capture.store import CaptureStore
from nemo_gym.capture.usage import extract_token_stats
from nemo_gym.config_types import BaseRunServerInstanceConfig
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_correlation import RolloutContextMiddleware, maybe_rollout_id_from_run_body
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.model_requests import ModelExecutionOutcome, NonGeneratingRequest, start_model_execution
from nemo_gym.serve.refusals import MESSAGES_PATH, Refusals, failure_text, refusal, refusal_status
from nemo_gym.serve.replay import chat_failure_frames, event_stream, messages_failure_frames, replayed, streamed
from nemo_gym.serve.token_capture import captured, install_token_capture
from nemo_gym.server_utils import BaseServer, SimpleServer
from nemo_gym.telemetry import trace_fn
from nemo_gym.token_id_capture.current import active_call

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.protocols import LineageResolver

__all__ = [
    "BaseResponsesAPIModel",
    "BaseResponsesAPIModelConfig",
    "Body",
    "CaptureStore",
    "ModelCallCaptureConfig",
    "ModelCallRecord",
    "ModelExecutionOutcome",
    "NonGeneratingRequest",
    "SimpleResponsesAPIModel",
    "_reconstruct_streamed_response",
    "aggregate_model_call_metrics",
    "aggregate_model_call_records",
    "build_model_call_record",
    "clear_model_call_captures_for_rollouts",
    "extract_token_stats",
    "install_model_call_capture",
    "make_capture_store",
    "maybe_rollout_id_from_run_body",
    "merge_model_call_capture_into_record",
    "model_call_capture_dirs_from_config",
    "observability_enabled_from_config",
    "read_available_model_call_records",
    "read_model_call_records",
    "start_model_execution",
]

_Params = TypeVar("_Params", bound=BaseModel)
_logger = logging.getLogger(__name__)


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    token_id_capture_non_generating_requests: list[NonGeneratingRequest] = Field(default_factory=list)


class _CaptureMiddleware:
    """Strips the rollout prefix of requests, and records the model calls of the rollouts it names."""

    def __init__(
        self,
        app: Any,
        *,
        store: CaptureStore | None,
        model_server_name: str | None,
        token_store: Any = None,
        configured_sink: Any = None,
        lineage_store: "LineageResolver | None" = None,
        delta_records: bool = False,
        external_staging: bool = False,
        token_capture_enabled: bool = False,
        non_generating_requests: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        if token_capture_enabled or external_staging or token_store or configured_sink or lineage_store:
            from nemo_gym.token_id_capture.middleware import TokenCaptureMiddleware

            app = TokenCaptureMiddleware(
                app,
                token_store=token_store,
                configured_sink=configured_sink,
                lineage_store=lineage_store,
                delta_records=delta_records,
                external_staging=external_staging,
                token_capture_enabled=token_capture_enabled,
                non_generating_requests=non_generating_requests,
            )
        calls = ModelCallMiddleware(app, store=store, model_server_name=model_server_name)
        self.app = RolloutContextMiddleware(calls)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


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
    store = make_capture_store(config, global_config_dict)
    app.add_middleware(_CaptureMiddleware, store=store, model_server_name=model_server_name)


def merge_model_call_capture_into_record(
    record: dict[str, Any], capture_dirs: list[Path], *, include_payloads: bool = False
) -> dict[str, Any]:
    """Add `ng_model_call_capture` to a rollout's record and join its agent observations with it; returns the record.

    A record that names no rollout stays as it is. What can't be read becomes a gap.
    """
    rollout_id = maybe_rollout_id_from_run_body(record)
    if rollout_id is None:
        return record
    return merge_capture(record, rollout_id, capture_dirs, include_payloads=include_payloads)


def clear_model_call_captures_for_rollouts(records: Iterable[Mapping[str, Any]], capture_dirs: list[Path]) -> None:
    """Delete what was captured of rollouts that are about to be dispatched."""
    ids = [rollout_id for record in records if (rollout_id := maybe_rollout_id_from_run_body(record)) is not None]
    clear_captures(ids, capture_dirs)


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

    def setup_exception_middleware(self, app: FastAPI) -> None:
        app.add_middleware(Refusals, server_label=self.get_session_middleware_key())
        super().setup_exception_middleware(app)

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
            return await streamed(self._stream_responses(request, params, ns_map), _responses_failure_frames)
        params = _validated(NeMoGymResponseCreateParamsNonStreaming, body)
        response = await self._invoke_responses(request, params)
        return await self._finalize_served_response(_orjson_dispatch_response(response))

    async def _stream_responses(
        self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming, ns_map: dict[str, tuple[str, str]]
    ) -> Any:
        from nemo_gym.responses_streaming import synthesize_responses_sse

        try:
            response = await self._invoke_responses(request, params)
            return await self._stream_served_response(response, synthesize_responses_sse(response, ns_map))
        except Exception as error:
            _logger.warning("a streamed response failed: %s", failure_text(error))
            return event_stream(_responses_failure_frames(error))

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
        from nemo_gym.schema.anthropic_ingress import require_fields

        try:
            require_fields(body)
            params = AnthropicConverter().anthropic_request_to_responses(body)
        except (NotImplementedError, LookupError, TypeError, ValueError) as error:
            return refusal(MESSAGES_PATH, 400, str(error) or repr(error))
        answer = self._answer_messages(request, body, params)
        try:
            return await (streamed(answer, messages_failure_frames) if body.get("stream") else answer)
        except HTTPException as error:
            return refusal(MESSAGES_PATH, error.status_code, failure_text(error), dict(error.headers or {}))

    async def _answer_messages(
        self, request: Request, body: dict[str, Any], params: NeMoGymResponseCreateParamsNonStreaming
    ) -> Any:
        from nemo_gym.anthropic_converter import AnthropicConverter

        response = await self._invoke_responses(request, params)
        if isinstance(response, Response):
            return response
        if isinstance(response, Mapping):
            response = NeMoGymResponse.model_validate(response)
        converter = AnthropicConverter()
        message = converter.responses_to_anthropic_response(response, body.get("model") or response.model)
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


def _responses_failure_frames(error: Exception) -> Iterable[str]:
    """The frames of a Responses stream that failed."""
    from nemo_gym.responses_streaming import synthesize_responses_failure_sse

    code = "server_error" if refusal_status(error) is None else "invalid_prompt"
    return synthesize_responses_failure_sse(failure_text(error), code=code)
