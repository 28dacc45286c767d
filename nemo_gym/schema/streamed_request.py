"""Requests of streaming clients, reduced to what a whole answer needs and our strict models accept."""

import copy
import logging
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym.schema.chat_request import CHAT_REQUEST_PROVIDER_EXTENSION_FIELDS
from nemo_gym.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming as ChatParams
from nemo_gym.schema.item_unions import NeMoGymResponseInputItem
from nemo_gym.schema.namespaces import NamespaceMap, flatten_namespace_tools, joined_name
from nemo_gym.schema.replay import replayable_item, replayable_tool
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schema.tools import ToolParam
from nemo_gym.schema.wire import as_list

_STREAM_KEYS = ("stream", "stream_options")
_logger = logging.getLogger(__name__)
ModelT = TypeVar("ModelT", bound=BaseModel)


@cache
def _tool_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(ToolParam)


@cache
def _item_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(NeMoGymResponseInputItem)


def sanitize_streaming_responses_body(body: dict[str, Any]) -> tuple[dict[str, Any], NamespaceMap]:
    """A Responses request without streaming and without what we can't accept, and the origin of flattened tool names.

    Tools and input items that are invalid are dropped with a warning. Works on a copy.
    """
    clean = {key: value for key, value in copy.deepcopy(body).items() if key not in _STREAM_KEYS}
    tools, origins = flatten_namespace_tools(as_list(clean.get("tools")))
    if isinstance(clean.get("input"), list):
        items, added = _without_additional_tools(clean["input"])
        more, more_origins = flatten_namespace_tools(added)
        tools.extend(tool for tool in more if _is_function(tool))
        origins |= more_origins
        clean["input"] = [item for item in map(_joined_call, items) if _is_valid(item, _item_adapter(), "input item")]
        _move_opening_instructions(clean)
    if tools or isinstance(clean.get("tools"), list):
        repaired = (_without_extras(tool, _tool_adapter()) for tool in map(replayable_tool, tools))
        clean["tools"] = [tool for tool in repaired if _is_valid(tool, _tool_adapter(), "tool")]
    known = NeMoGymResponseCreateParamsNonStreaming.model_fields
    return {key: value for key, value in clean.items() if key in known}, origins


def sanitize_streaming_chat_body(body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """A chat request without streaming, and whether the client wants usage at the end of its stream."""
    options = body.get("stream_options")
    include_usage = bool(isinstance(options, dict) and options.get("include_usage"))
    known = ChatParams.model_fields.keys() - {*_STREAM_KEYS, *CHAT_REQUEST_PROVIDER_EXTENSION_FIELDS}
    return {key: value for key, value in body.items() if key in known}, include_usage


def validate_streaming_responses_params(body: dict[str, Any]) -> NeMoGymResponseCreateParamsNonStreaming:
    """The validated request, after taking away what is only too much. Raises ValidationError for what is wrong."""
    body = copy.deepcopy(body)
    while True:
        try:
            return NeMoGymResponseCreateParamsNonStreaming.model_validate(body)
        except ValidationError as error:
            if not _remove_extras(body, error):
                raise


def _is_function(tool: Any) -> bool:
    if isinstance(tool, dict) and tool.get("type") == "function":
        return True
    _logger.warning("dropped an additional tool that is not a function")
    return False


def _without_additional_tools(items: list[Any]) -> tuple[list[Any], list[Any]]:
    added = [item for item in items if isinstance(item, dict) and item.get("type") == "additional_tools"]
    kept = [item for item in items if not (isinstance(item, dict) and item.get("type") == "additional_tools")]
    return kept, [tool for item in added for tool in as_list(item.get("tools"))]


def _joined_call(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("type") != "function_call" or not item.get("namespace"):
        return item
    rest = {key: value for key, value in item.items() if key != "namespace"}
    return {**rest, "name": joined_name(item["namespace"], str(item.get("name")))}


def _is_valid(value: Any, adapter: TypeAdapter[Any], what: str) -> bool:
    try:
        adapter.validate_python(replayable_item(value) if what == "input item" else value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        _logger.warning("dropped an invalid %s: %s: %s", what, ".".join(map(str, first["loc"])), first["msg"])
        return False
    return True


def _without_extras(value: Any, adapter: TypeAdapter[Any]) -> Any:
    """The value without keys its type doesn't know."""
    for _ in range(8):
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            if _remove_extras(value, error):
                continue
        break
    return value


def _remove_extras(body: Any, error: ValidationError) -> bool:
    """Takes away every key reported as unknown; False if there was none."""
    extras = [problem["loc"] for problem in error.errors(include_url=False) if problem["type"] == "extra_forbidden"]
    removed = [_remove(body, loc) for loc in extras]
    return any(removed)


def _remove(body: Any, loc: tuple[int | str, ...]) -> bool:
    """Deletes the key at an error location, whose steps also name union members."""
    *steps, key = loc
    for step in steps:
        inside_list = isinstance(body, list) and isinstance(step, int) and step < len(body)
        if inside_list or (isinstance(body, dict) and step in body):
            body = body[step]
    return isinstance(body, dict) and body.pop(key, _remove) is not _remove


def _text_of(message: dict[str, Any]) -> str | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [part.get("text") if isinstance(part, dict) else None for part in as_list(content)]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(texts) else None


def _move_opening_instructions(body: dict[str, Any]) -> None:
    """System and developer messages that open the input become instructions."""
    given = body.get("instructions")
    if not isinstance(given, str | None):
        return
    texts = [given] if given else []
    items: list[Any] = body["input"]
    while items and isinstance(items[0], dict) and items[0].get("role") in ("system", "developer"):
        text = _text_of(items[0])
        if text is None:
            break
        texts.append(text)
        items = items[1:]
    if len(items) < len(body["input"]):
        body["instructions"] = "\n\n".join(texts)
        body["input"] = items
