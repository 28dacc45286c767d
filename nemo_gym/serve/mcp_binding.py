"""Tool routes as functions: what is needed to call a route's handler without a request of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin

import orjson
from aiohttp import ClientResponseError
from fastapi import params
from fastapi.dependencies.utils import get_typed_signature
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope

from nemo_gym.serve.failures import plain_text
from nemo_gym.serve.redaction import redact
from nemo_gym.serve.sessions import SESSION_ID_KEY, within_session
from nemo_gym.serve.validation_errors import listed

_NOTHING = inspect.Parameter.empty


class DirectDispatchError(Exception):
    """A tool call failed; reads as `HTTP <status> from POST /<tool>: <detail>`."""

    def __init__(self, status: int, path: str, detail: str) -> None:
        super().__init__(f"HTTP {status} from POST {path}: {redact(detail)}")
        self.status = status


@dataclass(frozen=True)
class DirectBinding:
    """How the arguments of a tool call become those of its handler."""

    path: str
    handler: Callable[..., Any]
    request_names: tuple[str, ...] = ()
    body_name: str | None = None
    body_model: type[BaseModel] | None = None
    """None for a handler that takes a plain dict, or no body at all."""
    path_name: str | None = None
    response_model: Any = None
    response_options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _response_adapter(self) -> TypeAdapter[Any] | None:
        return None if self.response_model is None else TypeAdapter(self.response_model)

    def as_json(self, result: Any) -> Any:
        """A handler's result as its route would send it."""
        adapter = self._response_adapter
        if adapter is None:
            return jsonable_encoder(result)
        is_one = _is_model(self.response_model) and isinstance(result, self.response_model)
        value = result if is_one else adapter.validate_python(result, from_attributes=True)
        return adapter.dump_python(value, mode="json", **self.response_options)


@dataclass(frozen=True)
class BindResult:
    """A binding, or the reasons why there can't be one."""

    binding: DirectBinding | None
    reasons: tuple[str, ...] = ()


def bind_route(route: Any) -> BindResult:
    """The binding of a POST route of FastAPI, from its handler's signature.

    Handlers may take requests, one body (a pydantic model or a dict) and a `str` from the path.
    """
    found: dict[str, Any] = {"request_names": ()}
    reasons: list[str] = []
    path_names = set(getattr(route, "param_convertors", {}))
    for parameter in get_typed_signature(route.endpoint).parameters.values():
        reason = _place(parameter, path_names, found)
        if reason is not None:
            reasons.append(f"parameter `{parameter.name}` {reason}")
    if reasons:
        return BindResult(None, tuple(reasons))
    binding = DirectBinding(
        path=route.path,
        handler=route.endpoint,
        response_model=getattr(route, "response_model", None),
        response_options=_response_options(route),
        **found,
    )
    return BindResult(binding)


def _place(parameter: inspect.Parameter, path_names: set[str], found: dict[str, Any]) -> str | None:
    """Note in `found` what a parameter gets; else say why it can get nothing."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return "takes any number of values"
    annotation, default = _bare(parameter)
    if isinstance(annotation, type) and issubclass(annotation, Request):
        found["request_names"] += (parameter.name,)
        return None
    if parameter.name in path_names:
        found["path_name"] = parameter.name
        return None if annotation is str else "of the path is no `str`"
    if isinstance(default, params.Depends):
        return "is injected"
    if isinstance(default, params.Param) or not _is_body(annotation):
        return "is no request, body or part of the path: unions, optional bodies and query parameters can't be filled"
    if "body_name" in found:
        return "is a second body"
    found["body_name"] = parameter.name
    found["body_model"] = annotation if _is_model(annotation) else None
    return None


def _bare(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """A parameter's annotation without `Annotated`, and what FastAPI is told about it."""
    annotation, default = parameter.annotation, parameter.default
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        told = (note for note in notes if isinstance(note, params.Depends | params.Param | params.Body))
        default = next(told, default)
    return annotation, default


def _is_body(annotation: Any) -> bool:
    return _is_model(annotation) or annotation is dict or get_origin(annotation) is dict


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel)


def _response_options(route: Any) -> dict[str, Any]:
    names = ("include", "exclude", "by_alias", "exclude_unset", "exclude_defaults", "exclude_none")
    options = {name: getattr(route, f"response_model_{name}", None) for name in names}
    return {name: value for name, value in options.items() if value is not None}


async def call_direct(
    binding: DirectBinding, arguments: dict[str, Any], *, session_id: str, path_value: str | None = None
) -> Any:
    """The JSON value a tool answers to `arguments` in a session; DirectDispatchError when it fails.

    Handlers that are no coroutines run in a thread.
    """
    path = binding.path if path_value is None else f"/{path_value}"
    try:
        values = _values(binding, arguments, session_id, path_value)
        return await _called(binding, values, session_id)
    except Exception as error:
        raise DirectDispatchError(*_told(error, path)) from error


async def _called(binding: DirectBinding, values: dict[str, Any], session_id: str) -> Any:
    with within_session(session_id):
        if inspect.iscoroutinefunction(inspect.unwrap(binding.handler)):
            result = await binding.handler(**values)
        else:
            result = await run_in_threadpool(binding.handler, **values)
    return _sent(result) if isinstance(result, Response) else binding.as_json(result)


def _values(
    binding: DirectBinding, arguments: dict[str, Any], session_id: str, path_value: str | None
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if binding.body_name is not None:
        values[binding.body_name] = _body(binding, arguments)
    if binding.path_name is not None:
        values[binding.path_name] = path_value
    for name in binding.request_names:
        values[name] = _request(binding.path if path_value is None else f"/{path_value}", arguments, session_id)
    return values


def _body(binding: DirectBinding, arguments: dict[str, Any]) -> Any:
    if binding.body_model is None:
        return arguments
    try:
        return binding.body_model.model_validate(arguments)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        detail = orjson.dumps(listed(found)["detail"]).decode()
        raise HTTPException(422, detail) from error


def _request(path: str, arguments: dict[str, Any], session_id: str) -> Request:
    """A request that says what a handler may ask one: its session and its body."""
    body = orjson.dumps(arguments)
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 0),
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
        "session": {SESSION_ID_KEY: session_id},
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


def _sent(response: Response) -> Any:
    """The value in a response a handler made itself; HTTPException when it is no success."""
    text = bytes(response.body).decode("utf-8", errors="replace")
    if response.status_code >= 400:
        raise HTTPException(response.status_code, text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _told(error: Exception, path: str) -> tuple[int, str, str]:
    """Status, path and detail of what a route would have answered."""
    if isinstance(error, HTTPException):
        detail = error.detail if isinstance(error.detail, str) else orjson.dumps(error.detail, default=str).decode()
        return error.status_code, path, detail
    if isinstance(error, ClientResponseError):
        content = getattr(error, "response_content", b"")
        return 500, path, f"{error.request_info.url} answered {error.status}: {plain_text(content)}"
    return 500, path, repr(error)
