"""Tools grouped in namespaces, flattened for backends that know only functions, and split again in the answer."""

import logging
from collections.abc import Mapping
from typing import Any

from nemo_gym.schema.wire import as_list

NAMESPACE_TOOL_DELIMITER = "__"
NamespaceMap = dict[str, tuple[str, str]]

_logger = logging.getLogger(__name__)


def joined_name(namespace: str, name: str) -> str:
    """The flat name of a tool in a namespace."""
    return f"{namespace}{NAMESPACE_TOOL_DELIMITER}{name}"


def flatten_namespace_tools(tools: list[Any]) -> tuple[list[Any], NamespaceMap]:
    """Tools without namespaces, and where each joined name came from. What is no function is left out of a namespace,
    with a warning.
    """
    flat: list[Any] = []
    origins: NamespaceMap = {}
    for tool in tools:
        if not isinstance(tool, Mapping) or tool.get("type") != "namespace":
            flat.append(tool)
            continue
        for member in as_list(tool.get("tools")):
            if not isinstance(member, Mapping) or member.get("type") != "function" or "name" not in member:
                _logger.warning("left out of namespace %r: a tool that is not a function", tool.get("name"))
                continue
            name = joined_name(str(tool.get("name")), str(member["name"]))
            origins[name] = (str(tool.get("name")), str(member["name"]))
            flat.append({"parameters": None, "strict": None, **member, "name": name})
    return flat, origins


def restore_namespace_tool_calls(response: dict[str, Any], ns_map: NamespaceMap | None) -> dict[str, Any]:
    """The response with flat function call names split into namespace and name again. Works on a copy."""
    if not ns_map:
        return response
    output = [_restored(item, ns_map) for item in as_list(response.get("output"))]
    return {**response, "output": output}


def _restored(item: Any, ns_map: NamespaceMap) -> Any:
    if not isinstance(item, dict) or item.get("type") != "function_call" or item.get("name") not in ns_map:
        return item
    namespace, name = ns_map[item["name"]]
    return {**item, "namespace": namespace, "name": name}
