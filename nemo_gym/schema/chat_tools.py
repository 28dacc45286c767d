"""Tools and tool choice, Responses ⇄ Chat Completions."""

from collections.abc import Mapping
from typing import Any

from nemo_gym.schema.errors import InvalidContent, UnsupportedInDialect

_NAMED = ("function", "custom")
_MODES = ("auto", "none", "required")


def reference_to_chat(tool: Mapping[str, Any]) -> dict[str, Any]:
    """`{type, name}` as `{type, <type>: {name}}`."""
    kind = tool.get("type")
    if kind not in _NAMED:
        raise UnsupportedInDialect(f"a choice of tool type {kind!r} has no form in Chat Completions")
    return {"type": kind, kind: {"name": tool["name"]}}


def reference_to_responses(tool: Mapping[str, Any]) -> dict[str, Any]:
    """`{type, <type>: {name}}` as `{type, name}`."""
    kind = tool.get("type")
    if kind not in _NAMED:
        raise UnsupportedInDialect(f"a choice of tool type {kind!r} has no form in the Responses API")
    return {"type": kind, "name": tool[kind]["name"]}


def choice_to_chat(choice: Any) -> Any:
    """A Responses tool choice in chat form."""
    if choice is None or choice in _MODES:
        return choice
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        tools = [reference_to_chat(tool) for tool in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
    if isinstance(choice, Mapping):
        return reference_to_chat(choice)
    raise UnsupportedInDialect(f"tool_choice {choice!r} has no form in Chat Completions")


def choice_to_responses(choice: Any) -> Any:
    """A chat tool choice in Responses form."""
    if choice is None or choice in _MODES:
        return choice
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        allowed = choice["allowed_tools"]
        tools = [reference_to_responses(tool) for tool in allowed["tools"]]
        return {"type": "allowed_tools", "mode": allowed["mode"], "tools": tools}
    if isinstance(choice, Mapping):
        return reference_to_responses(choice)
    raise UnsupportedInDialect(f"tool_choice {choice!r} has no form in the Responses API")


def custom_tool_to_chat(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A custom tool; its grammar is nested one level deeper in chat."""
    custom = {key: tool[key] for key in ("name", "description") if tool.get(key) is not None}
    form = tool.get("format")
    if form and form.get("type") == "grammar":
        custom["format"] = {"type": "grammar", "grammar": {key: form[key] for key in ("definition", "syntax")}}
    elif form:
        custom["format"] = form
    return {"type": "custom", "custom": custom}


def custom_tool_to_responses(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A custom tool; its grammar is one level flatter in the Responses API."""
    custom = {**tool["custom"], "type": "custom"}
    form = custom.get("format")
    if form and form.get("type") == "grammar":
        custom["format"] = {"type": "grammar", **form["grammar"]}
    return custom


def tool_to_chat(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function or custom tool. Raises UnsupportedInDialect for hosted and deferred ones."""
    if tool.get("defer_loading"):
        raise UnsupportedInDialect("tools with defer_loading have no form in Chat Completions")
    match tool.get("type"):
        case "function":
            keys = ("name", "description", "parameters", "strict")
            return {"type": "function", "function": {key: tool[key] for key in keys if tool.get(key) is not None}}
        case "custom":
            return custom_tool_to_chat(tool)
        case kind:
            raise UnsupportedInDialect(f"tools of type {kind!r} have no form in Chat Completions")


def tool_to_responses(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A chat tool; `parameters` and `strict` are always given, null if unknown."""
    match tool.get("type"):
        case "function":
            return {"parameters": None, "strict": None, **tool["function"], "type": "function"}
        case "custom":
            return custom_tool_to_responses(tool)
        case kind:
            raise UnsupportedInDialect(f"chat tools of type {kind!r} have no form in the Responses API")


def refuse_choice_without_tools(choice: Any) -> None:
    """Raises InvalidContent if a request that offers no tool asks for one."""
    if choice not in (None, "auto", "none"):
        raise InvalidContent(f"tool_choice {choice!r} needs tools, and the request offers none")
