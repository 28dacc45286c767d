"""What a tool is: a method, a sentence for the model, and a description of each argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from nemo_gym.verifiers.patterns import matching
from resources_servers.workplace_assistant.tables import Office, Row

_Method = TypeVar("_Method", bound=Callable[..., Any])
PAGE_SIZE = 5
_REPEATS = frozenset("*+?{([\\")
"""Without one of these a pattern takes no more time than its length allows."""
_SHORT = 1_000
"""Characters of a pattern that is compiled in no time, and may stay in the memory of `re`."""


@dataclass(frozen=True)
class ToolFacts:
    """What a model is told of a tool: what it does, its arguments, and which of those it must give.

    A tool that is only reading leaves the office as it is.
    """

    description: str
    arguments: Mapping[str, str]
    required: tuple[str, ...]
    is_reading: bool


def tool(
    description: str,
    about: Mapping[str, str] = MappingProxyType({}),
    *,
    required: str = "",
    is_reading: bool = False,
    **arguments: str,
) -> Callable[[_Method], _Method]:
    """Marks a method of a toolkit as a tool.

    Arguments are described by `about` and by keyword; `required` names some of them, separated by spaces.
    """

    def marked(method: _Method) -> _Method:
        facts = ToolFacts(description, {**about, **arguments}, tuple(required.split()), is_reading)
        method.tool_facts = facts  # type: ignore[attr-defined]
        return method

    return marked


class Toolkit:
    """The tools of one application, named `<prefix>_<method>`."""

    prefix: ClassVar[str]

    def __init__(self, office: Office) -> None:
        self.office = office

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {f"{self.prefix}_{name}": getattr(self, name) for name in _tool_names(type(self))}

    @classmethod
    def schemas(cls) -> list[dict[str, Any]]:
        """The function tools of the Responses API, as rows carry them."""
        return [_schema(f"{cls.prefix}_{name}", getattr(cls, name)) for name in _tool_names(cls)]


def _tool_names(kind: type[Toolkit]) -> list[str]:
    return [name for name, value in vars(kind).items() if hasattr(value, "tool_facts")]


def _schema(name: str, method: Any) -> dict[str, Any]:
    facts: ToolFacts = method.tool_facts
    defaults = inspect.signature(method).parameters
    kinds = {
        argument: "integer" if isinstance(defaults[argument].default, int) else "string" for argument in facts.arguments
    }
    properties = {
        argument: {"type": kinds[argument], "description": text} for argument, text in facts.arguments.items()
    }
    return {
        "type": "function",
        "name": name,
        "description": facts.description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(facts.required),
            "additionalProperties": False,
        },
        "strict": False,
    }


def page_of(rows: list[dict[str, str]], name: str, page: int, page_size: int) -> dict[str, Any]:
    """One page of rows under `name`, and where it lies; a page beyond the last is the last."""
    size = max(1, int(page_size))
    pages = max(1, -(-len(rows) // size))
    number = min(max(1, int(page)), pages)
    facts = {f"total_{name}": len(rows), "page": number, "page_size": size, "total_pages": pages}
    return {name: rows[(number - 1) * size : number * size], "pagination": facts}


def field_of(row: Row | None, field: str, what: str) -> Any:
    """`{field: value}` of a row, or why there is none."""
    if row is None:
        return f"{what} not found."
    return {field: row[field]} if field in row else "Field not found."


def is_within_days(moment: str, first: str | None, last: str | None) -> bool:
    """Whether a timestamp lies between two days, each of which may be missing and counts whole."""
    return (not first or moment[:10] >= first[:10]) and (not last or moment[:10] <= last[:10])


def is_timestamp(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_address(text: str) -> bool:
    return "@" in text and "." in text


def padded(number: int) -> str:
    return f"{number:08}"


async def having(pattern: str, rows: Iterable[Row], *columns: str) -> list[Row]:
    """The rows that match a regular expression in one of the columns, upper or lower case alike.

    Patterns come from a model: those that are more than text are matched where they can't hold up the server. Raises
    PatternError and PatternTimeoutError.
    """
    rows = list(rows)
    texts = ["\n".join(row[column] for column in columns) for row in rows]
    if len(pattern) <= _SHORT and _REPEATS.isdisjoint(pattern):
        expression = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
        found = [expression.search(text) is not None for text in texts]
    else:
        found = await matching(f"(?im:{pattern})", texts)
    return [row for row, is_found in zip(rows, found, strict=True) if is_found]
