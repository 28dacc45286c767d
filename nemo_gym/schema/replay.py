"""What has to change in a provider's answer before it can be sent back as input."""

from collections.abc import Iterable
from typing import Any

from nemo_gym.schema import items
from nemo_gym.schema.item_unions import OWN_TAGS, input_item_tag
from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS
from nemo_gym.schema.wire import plain

_KNOWN_KEYS: dict[str, frozenset[str]] = {}
for _plain_class, _tag in OWN_TAGS.items():
    _KNOWN_KEYS[_tag] = frozenset(_plain_class.model_fields) | TOKEN_METADATA_FIELDS
    if _plain_class in items.TRAINING_ITEMS:
        _KNOWN_KEYS[f"{_tag}_for_training"] = _KNOWN_KEYS[_tag]
# A Chat Completions assistant message has the keys of an easy message, and its tool calls must not be lost.
for _tag in ("easy_message", "easy_message_for_training"):
    _KNOWN_KEYS[_tag] |= {"tool_calls"}
# What can be said without looking which class an item is: each of these types has one, and messages share some keys.
_SAFE_KEYS: dict[str | None, frozenset[str]] = {
    kind: _KNOWN_KEYS[kind] for kind in ("function_call", "function_call_output", "reasoning")
}
_SAFE_KEYS["message"] = _SAFE_KEYS[None] = frozenset.intersection(
    *(_KNOWN_KEYS[tag] for tag in ("easy_message", "input_message", "output_message"))
)


def replayable_tool(tool: Any) -> Any:
    """A tool without the null that providers answer where they accept only true or false."""
    tool = plain(tool)
    if isinstance(tool, dict) and "defer_loading" in tool and tool["defer_loading"] is None:
        return {**tool, "defer_loading": False}
    return tool


def replayable_items(items: Iterable[Any]) -> list[Any]:
    """Input items as plain data: see `replayable_item`."""
    return [item if type(item) is dict and _has_safe_keys(item) else replayable_item(item) for item in items]


def _has_safe_keys(item: dict[str, Any]) -> bool:
    """True if the item can be sent back as it is, whatever its class."""
    kind = item.get("type")
    safe = _SAFE_KEYS.get(kind) if kind is None or isinstance(kind, str) else None
    return safe is not None and safe.issuperset(item)


def replayable_item(item: Any) -> Any:
    """One input item as plain data, without the unknown fields of our own item classes: providers refuse those."""
    item = plain(item)
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind == "additional_tools" and item.get("role") != "developer":
        item = {**item, "role": "developer"}
    if kind == "computer_call_output" and item.get("status") == "failed":
        item = {key: value for key, value in item.items() if key != "status"}
    if kind in ("additional_tools", "tool_search_output") and isinstance(item.get("tools"), list):
        item = {**item, "tools": [replayable_tool(tool) for tool in item["tools"]]}
    known = _KNOWN_KEYS.get(input_item_tag(item) or "")
    if known is None or known.issuperset(item):
        return item
    return {key: value for key, value in item.items() if key in known}
