"""What a text holds, in each of the formats a model may be asked for."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any
from xml.parsers import expat

MAX_NODES = 1_000_000
"""Values a YAML document may come to when its aliases are written out."""


class SchemaType(StrEnum):
    JSON = "json"
    YAML = "yaml"
    XML = "xml"
    TOML = "toml"
    CSV = "csv"


SIMPLEST = {
    SchemaType.JSON: "{}",
    SchemaType.YAML: "{}",
    SchemaType.XML: "<a/>",
    SchemaType.TOML: "",
    SchemaType.CSV: "a\n",
}
"""A document of each kind that takes no time to read."""


class DocumentError(ValueError):
    """A text is not what it should be."""


def parsed(text: str, schema_type: SchemaType) -> Any:
    """What the text holds. Raises whatever its parser does: ValueError, yaml.YAMLError, csv.Error, RecursionError …"""
    return _PARSERS[schema_type](text)


def parse_yaml(text: str) -> Any:
    """One document of plain YAML. Raises yaml.YAMLError; DocumentError for aliases that multiply, or go in circles."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    value = yaml.load(text, Loader=loader)
    _size(value, {})
    return value


def parse_csv(text: str) -> list[dict[Any, Any]]:
    """A dictionary of texts for each row below the header. Raises csv.Error."""
    return list(csv.DictReader(io.StringIO(text)))


def csv_columns(text: str) -> list[str]:
    """What the header names."""
    return list(csv.DictReader(io.StringIO(text)).fieldnames or ())


def parse_xml(text: str) -> dict[str, Any]:
    """The document as dictionaries: `{root: content}`.

    An element becomes None, its text, or a dictionary of its attributes (`@name`), its elements (a list where a name
    comes again) and its text (`#text`). Raises expat.ExpatError; DocumentError for one that declares entities.
    """
    handler = _Elements()
    parser = expat.ParserCreate()
    parser.ordered_attributes = False
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = _refuse_entities
    parser.Parse(text.encode("utf-8"), True)
    return handler.top


class _Elements:
    """Builds dictionaries from what the XML parser sees."""

    def __init__(self) -> None:
        self.top: dict[str, Any] = {}
        self._open: list[tuple[dict[str, Any], list[str]]] = [(self.top, [])]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(({f"@{key}": value for key, value in attributes.items()}, []))

    def text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def end(self, name: str) -> None:
        content, texts = self._open.pop()
        text = "".join(texts).strip() or None
        if content and text is not None:
            _put(content, "#text", text)
        _put(self._open[-1][0], name, content or text)


def _put(content: dict[str, Any], name: str, value: Any) -> None:
    if name not in content:
        content[name] = value
    elif isinstance(content[name], list):
        content[name].append(value)
    else:
        content[name] = [content[name], value]


def _refuse_entities(*declaration: Any) -> None:
    raise DocumentError("the document declares entities")


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are in `value`, those met again counted again."""
    if not isinstance(value, dict | list | set | tuple):
        return 1
    if (size := known.get(id(value))) is not None:
        if not size:
            raise DocumentError("an alias refers to what it is in")
        return size
    known[id(value)] = 0
    size = 1 + sum(_size(child, known) for child in _children(value))
    if size > MAX_NODES:
        raise DocumentError(f"its aliases stand for more than {MAX_NODES} values")
    known[id(value)] = size
    return size


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    else:
        yield from value


_PARSERS: dict[SchemaType, Callable[[str], Any]] = {
    SchemaType.JSON: json.loads,
    SchemaType.YAML: parse_yaml,
    SchemaType.XML: parse_xml,
    SchemaType.TOML: tomllib.loads,
    SchemaType.CSV: parse_csv,
}
