"""Texts made the numbers and lists that a schema asks for: XML and CSV have nothing but texts."""

from __future__ import annotations

from typing import Any

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def coerce_xml(value: Any, schema: Any) -> Any:
    """The value of an element as its schema wants it, where that can be; what can't stays as it is."""
    wanted = _wanted(value, schema.get("type")) if isinstance(schema, dict) else None
    if wanted == "object" and isinstance(value, dict):
        properties = _mapping(schema.get("properties"))
        return {
            name: coerce_xml(item, properties[name]) if name in properties else item for name, item in value.items()
        }
    if wanted == "array":
        return [coerce_xml(item, schema.get("items")) for item in _items(value)]
    if value is None and wanted == "string":
        return ""
    return _converted(value, wanted) if isinstance(value, str) else value


def coerce_csv(rows: list[dict[Any, Any]], schema: Any) -> list[dict[Any, Any]]:
    """The rows with the types that the properties of the schema's items have."""
    items = schema.get("items") if isinstance(schema, dict) else None
    properties = _mapping(items.get("properties")) if isinstance(items, dict) else {}
    types = {name: each.get("type") for name, each in properties.items() if isinstance(each, dict)}
    return [{name: _cell(value, types.get(name)) for name, value in row.items()} for row in rows]


def scalar(text: str, wanted: Any) -> Any:
    """The text as an integer, number or boolean where it is one; else as it is."""
    try:
        if wanted == "integer":
            return int(text)
        if wanted == "number":
            return float(text)
    except ValueError:
        return text
    return _BOOLEANS.get(text.strip().lower(), text) if wanted == "boolean" else text


def _cell(value: Any, wanted: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value:
        return None if isinstance(wanted, list) and "null" in wanted else value
    return _converted(value, wanted)


def _converted(text: str, wanted: Any) -> Any:
    """The text as the type that is wanted, or the first of several that it can be."""
    if not isinstance(wanted, list):
        return scalar(text, wanted)
    for each in wanted:
        converted = scalar(text, each)
        if each == "string" or not isinstance(converted, str):
            return converted
    return text


def _wanted(value: Any, types: Any) -> Any:
    """Which of several types a value that is no text is for."""
    if not isinstance(types, list) or isinstance(value, str):
        return types
    fitting = ("null", "array", "string") if value is None else ("object", "array")
    return next((each for each in fitting if each in types), None)


def _items(value: Any) -> list[Any]:
    """The items of a list as XML has them: inside one element, or one after the other, or just one."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
