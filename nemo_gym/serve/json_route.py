"""A FastAPI route that decodes a JSON body once, validates it once, calls the handler and encodes the answer once.

Handlers keep FastAPI's conventions (signature, status codes, 422 bodies, response model from the return annotation).
What the short way can't do exactly as FastAPI would, FastAPI does.
"""

from __future__ import annotations

import email.message
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import orjson
from fastapi.datastructures import DefaultPlaceholder
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.params import Form
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import SchemaSerializer
from starlette._exception_handler import wrap_app_handling_exceptions
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from nemo_gym.serve.bodies import check_nesting, read_body

_MISSING = object()


class JSONRoute(APIRoute):
    """FastAPI's route, answered by a `_JSONEndpoint` when the handler's signature allows it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        if _is_plain(self, options):
            self.app = _JSONEndpoint.of(self)
        self._fixed_path = None if self.param_convertors else self.path

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """FastAPI's answer; what asks for another path than the fixed one of this route is told so without a search."""
        if self._fixed_path not in (None, scope["path"]) and not (scope.get("root_path") or "fastapi" in scope):
            return Match.NONE, {}
        return super().matches(scope)

    @property
    def is_fast(self) -> bool:
        """Whether requests take the short way."""
        return isinstance(self.app, _JSONEndpoint)


def _is_plain(route: APIRoute, options: dict[str, Any]) -> bool:
    wants = route.dependant
    return (
        not (wants.query_params or wants.header_params or wants.cookie_params or wants.dependencies)
        and not (wants.http_connection_param_name or wants.websocket_param_name)
        and not (wants.background_tasks_param_name or wants.security_scopes_param_name)
        and len(wants.body_params) == 1
        and _is_json_body(route)
        and all(field.field_info.annotation is str and not field.field_info.metadata for field in wants.path_params)
        and not (inspect.isgeneratorfunction(route.endpoint) or inspect.isasyncgenfunction(route.endpoint))
        and isinstance(route.response_class, DefaultPlaceholder)
        and options.get("max_body_size") is None
        and not any(value for name, value in options.items() if name.startswith(_UNSUPPORTED_OPTION))
        and route.response_model_by_alias
    )


_UNSUPPORTED_OPTION = ("response_model_include", "response_model_exclude", "form_limits")


def _is_json_body(route: APIRoute) -> bool:
    field = route.dependant.body_params[0]
    return not isinstance(field.field_info, Form) and route.body_field is field


@dataclass(frozen=True, slots=True)
class _JSONEndpoint:
    """One handler with what was found out about it at registration."""

    call: Callable[..., Any]
    is_coroutine: bool
    body_field: Any
    path_names: tuple[str, ...]
    request_name: str | None
    response_name: str | None
    status: int
    result: _Result
    needs_content_type: bool

    @classmethod
    def of(cls, route: APIRoute) -> _JSONEndpoint:
        wants = route.dependant
        strict = getattr(route, "strict_content_type", False)
        return cls(
            call=cast(Callable[..., Any], wants.call),
            is_coroutine=inspect.iscoroutinefunction(_unwrapped(wants.call)),
            body_field=wants.body_params[0],
            path_names=tuple(field.name for field in wants.path_params),
            request_name=wants.request_param_name,
            response_name=wants.response_param_name,
            status=route.status_code or 200,
            result=_Result(route.response_model),
            needs_content_type=bool(strict.value if isinstance(strict, DefaultPlaceholder) else strict),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive)
        try:
            body = self._validate(self._decode(raw, scope))
        except (RequestValidationError, HTTPException) as error:
            await _answer_with_handler(error, _request(scope, receive, send, raw), send)
            return
        values = {name: scope["path_params"][name] for name in self.path_names}
        values[self.body_field.name] = body
        if self.request_name is not None:
            values[self.request_name] = _request(scope, receive, send, raw)
        extras = None
        if self.response_name is not None:
            values[self.response_name] = extras = _header_collector()
        try:
            returned = await (self.call(**values) if self.is_coroutine else run_in_threadpool(self.call, **values))
        except Exception as error:  # its handler may read the body again, which the client sends once
            await _answer_with_handler(error, _request(scope, receive, send, raw), send)
            return
        if isinstance(returned, Response):
            await returned(scope, receive, send)
        else:
            await self._reply(send, self.result.encode(returned), extras)

    def _decode(self, raw: bytes, scope: Scope) -> Any:
        if not raw:
            return _MISSING
        if not _is_json(scope, self.needs_content_type):
            return raw
        return decode_json(raw)

    def _validate(self, body: Any) -> Any:
        if body is _MISSING:
            return self._default()
        value, errors = self.body_field.validate(body, {}, loc=("body",))
        if errors:
            raise RequestValidationError(errors, body=body)
        return value

    def _default(self) -> Any:
        if self.body_field.field_info.is_required():
            missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
            raise RequestValidationError([missing], body=None)
        return self.body_field.field_info.get_default(call_default_factory=True)

    async def _reply(self, send: Send, content: bytes, extras: Response | None) -> None:
        status, headers = (
            self.status,
            [
                (b"content-length", b"%d" % len(content)),
                (b"content-type", b"application/json"),
            ],
        )
        if extras is not None:
            status = cast(int | None, extras.status_code) or status
            headers += extras.raw_headers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class _Result:
    """How a handler's return value becomes bytes: as the annotation says, without validating an instance again."""

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = TypeAdapter(annotation) if annotation else None
        self._trusted = annotation if _is_trusted(annotation) else ()

    def encode(self, value: Any) -> bytes:
        if self._adapter is None:
            return orjson.dumps(jsonable_encoder(value), option=orjson.OPT_NON_STR_KEYS)
        if not isinstance(value, self._trusted):
            value = self._validated(value)
        return _dump(self._adapter.serializer, value)

    def _validated(self, value: Any) -> Any:
        assert self._adapter is not None
        try:
            return self._adapter.validate_python(value, from_attributes=True)
        except ValidationError as error:
            found = [{**item, "loc": ("response", *item["loc"])} for item in error.errors(include_url=False)]
            raise ResponseValidationError(found, body=value) from error


def _dump(serializer: SchemaSerializer, value: Any) -> bytes:
    try:
        # Large arrays of numbers: orjson writes them 3x faster than pydantic does.
        return orjson.dumps(serializer.to_python(value, mode="json", by_alias=True))
    except orjson.JSONEncodeError:
        return serializer.to_json(value, by_alias=True)


def _is_trusted(annotation: Any) -> bool:
    return (
        isinstance(annotation, type)
        and issubclass(annotation, BaseModel)
        and annotation.model_config.get("revalidate_instances", "never") == "never"
    )


def decode_json(raw: bytes) -> Any:
    """The value of a JSON text; what the fast parser refuses is judged by the standard one, as in FastAPI.

    Raises RequestValidationError (a 422) when it isn't JSON, is nested too deeply or has strings that are no text,
    HTTPException (400) when it can't be parsed at all.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _decode_slowly(raw)
    check_nesting(raw, value)
    return value


def _decode_slowly(raw: bytes) -> Any:
    try:
        value = json.loads(raw)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise RequestValidationError([_json_error(error.pos, error.msg)], body=error.doc) from error
    except UnicodeEncodeError as error:
        message = "A string holds half of a surrogate pair, which no answer could repeat"
        raise RequestValidationError([_json_error(error.start, message)], body=None) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or a number of thousands of digits
        raise HTTPException(400, "There was an error parsing the body") from error
    return value


def _json_error(position: int, message: str) -> dict[str, Any]:
    return {
        "type": "json_invalid",
        "loc": ("body", position),
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": message},
    }


def _is_json(scope: Scope, needs_content_type: bool) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return value == b"application/json" or _is_json_type(value.decode("latin-1"))
    return not needs_content_type


def _is_json_type(value: str) -> bool:
    message = email.message.Message()
    message["content-type"] = value
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


def _request(scope: Scope, receive: Receive, send: Send, raw: bytes) -> Request:
    """A request whose body, already read, can be read again."""
    request = Request(scope, receive, send)
    request._body = raw
    return request


async def _answer_with_handler(error: Exception, request: Request, send: Send) -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    await wrap_app_handling_exceptions(failing, request)(request.scope, request.receive, send)


def _header_collector() -> Response:
    response = Response()
    del response.headers["content-length"]
    response.status_code = cast(int, None)
    return response


def _unwrapped(call: Any) -> Any:
    return inspect.unwrap(call) if callable(call) else call
