"""Whether a text or the arguments of a call are what a schema asks for. Runs in a worker: both may be anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from resources_servers.structured_outputs.coercion import coerce_csv, coerce_xml
from resources_servers.structured_outputs.documents import SchemaType, csv_columns, parsed
from resources_servers.structured_outputs.schemas import strictified, validate

ErrorType = Literal[
    "api_error",
    "missing_tool_call",
    "multiple_tool_calls",
    "wrong_tool_name",
    "tool_arguments_parse_error",
    "missing_tool_payload_key",
    "empty_response",
    "schema_error",
    "parse_error",
    "validation_error",
]
MESSAGE_LENGTH = 200


@dataclass(frozen=True)
class Problem:
    """Why an answer is not what it should be; `is_rows` if the row is at fault, and no answer could be right."""

    error_type: ErrorType
    error_message: str | None = None
    is_rows: bool = False


def check_text(text: str, schema_text: str, schema_type: SchemaType, *, coerce_xml_types: bool) -> Problem | None:
    """What is wrong with a text in one of the formats, or None."""
    try:
        schema = json.loads(schema_text)
    except Exception as error:
        return Problem("schema_error", described(error), is_rows=True)
    try:
        value = parsed(text, schema_type)
        if schema_type is SchemaType.XML and coerce_xml_types:
            value = coerce_xml(value, schema)
        elif schema_type is SchemaType.CSV:
            value = coerce_csv(value, schema)
    except Exception as error:
        return Problem("parse_error", described(error))
    if schema_type is SchemaType.CSV and not value and not has_header(text, schema):
        return Problem("validation_error", "there are no rows, and the header is another")
    return check_value(value, schema)


def has_header(text: str, schema: Any) -> bool:
    """Whether CSV begins with the columns of the schema's items: any line is the header of no rows at all."""
    items = schema.get("items") if isinstance(schema, dict) else None
    properties = items.get("properties") if isinstance(items, dict) else None
    return not isinstance(properties, dict) or set(csv_columns(text)) == set(properties)


def check_arguments(arguments: str, schema_text: str, payload_key: str | None) -> Problem | None:
    """What is wrong with the arguments of a call, or with one of them, or None."""
    try:
        schema = json.loads(schema_text)
    except Exception as error:
        return Problem("schema_error", described(error), is_rows=True)
    try:
        value = json.loads(arguments)
    except Exception as error:
        return Problem("tool_arguments_parse_error", described(error))
    if payload_key:
        if not isinstance(value, dict) or payload_key not in value:
            return Problem("missing_tool_payload_key", f"the arguments have no {payload_key!r}"[:MESSAGE_LENGTH])
        value = value[payload_key]
    return check_value(value, schema)


def check_value(value: Any, schema: Any) -> Problem | None:
    from jsonschema.exceptions import SchemaError, ValidationError  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable

    try:
        validate(value, strictified(schema))
    except ValidationError as error:
        return Problem("validation_error", described(error))
    except (SchemaError, Unresolvable) as error:
        return Problem("validation_error", described(error), is_rows=True)
    except Exception as error:  # a value too deep or too large, a key that is no text
        return Problem("validation_error", described(error))
    return None


def described(error: Exception) -> str:
    """The error's class and the beginning of what it says."""
    message = error.message if hasattr(error, "message") else str(error)
    return f"{type(error).__name__}: {str(message)[:MESSAGE_LENGTH]}"[:MESSAGE_LENGTH]
