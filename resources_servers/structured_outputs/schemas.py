"""JSON Schemas as OpenAPI 3.1 has them: the 2020-12 draft, where a discriminator chooses among alternatives.

Formats are not checked, and `nullable` means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})


def strictified(schema: Any) -> Any:
    """The schema with all properties of its objects required, and no others allowed.

    Objects are those with `properties`. Lists (`anyOf`, …) are left as they are.
    """
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strictified(key, value) for key, value in schema.items()}
    if isinstance(strict.get("properties"), dict):
        strict |= {"required": list(strict["properties"]), "additionalProperties": False}
    return strict


def _strictified(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
        return {name: strictified(each) for name, each in value.items()}
    return strictified(value)


def validate(value: Any, schema: Any) -> None:
    """Raises jsonschema's SchemaError for a schema that is none, its ValidationError for a value that doesn't fit."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # which fetches nothing

    kind = validator_class()
    kind.check_schema(schema)
    error = best_match(kind(schema, registry=REGISTRY).iter_errors(value))
    if error is not None:
        raise error


@cache
def validator_class() -> Any:
    """Draft 2020-12 with OpenAPI's discriminator."""
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
    from jsonschema.validators import extend  # type: ignore[import-untyped]

    keywords = Draft202012Validator.VALIDATORS
    return extend(
        Draft202012Validator,
        {name: _discriminated(keywords[name]) for name in ("allOf", "anyOf", "oneOf")},
    )


def _discriminated(keyword: Any) -> Any:
    def chosen(validator: Any, alternatives: Any, value: Any, schema: Any) -> Iterator[Any]:
        choose = keyword if "discriminator" not in schema else _by_discriminator
        yield from choose(validator, alternatives, value, schema)

    return chosen


def _by_discriminator(validator: Any, alternatives: Any, value: Any, schema: Any) -> Iterator[Any]:
    """The one schema that the value names in the discriminating property."""
    from jsonschema.exceptions import ValidationError
    from referencing.exceptions import Unresolvable

    discriminator = schema["discriminator"]
    name = discriminator["propertyName"]
    kind = value.get(name) if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind:
        yield ValidationError(f"{value!r} does not say with {name!r} what it is")
        return
    reference = (discriminator.get("mapping") or {}).get(kind) or f"#/components/schemas/{kind}"
    try:
        yield from list(validator.descend(value, {"$ref": reference}))
    except Unresolvable:
        yield ValidationError(f"{kind!r} is none of the kinds of {name!r}")
