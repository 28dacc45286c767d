"""Writes the published questions' rows: `python prepare.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, fetch_rows, run_preparation

REPOSITORY = "Salesforce/xlam-function-calling-60k"
DATA = Path(__file__).parent / "data"
INSTRUCTIONS = (
    "Answer by calling functions. Make every call the question needs in one go, with the arguments it names, and no "
    "other."
)
_KINDS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "dict": "object",
}
_TYPE = re.compile(r"\s*(\w+)\s*(?:\[(.*)\])?")


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch the questions, write them and return the file. Raises PreparationError naming a row that can't be used."""
    return fetch_rows(REPOSITORY, as_row, output or DATA / f"{split}.jsonl", split=split, limit=limit)


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published question, whose `tools` and `answers` are JSON text, as the resources server wants it."""
    tools, answers = (_list(source, field, number) for field in ("tools", "answers"))
    if not source.get("query"):
        raise PreparationError(f"Row {number} has no query.")
    return make_row(str(source["query"]), [as_tool(tool) for tool in tools], answers)


def make_row(question: str, tools: list[dict[str, Any]], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """A row: a question, the function tools it may be answered with, and the calls that answer it."""
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    return {
        "responses_create_params": {"input": messages, "tools": tools, "parallel_tool_calls": True},
        "expected_answers": answers,
    }


def as_tool(published: Mapping[str, Any]) -> dict[str, Any]:
    """A function of the data set as a tool of the Responses API: `type` of its arguments is what Python would say."""
    parameters: Mapping[str, Any] = published.get("parameters") or {}
    required = [name for name, about in parameters.items() if not _is_optional(about)]
    return {
        "type": "function",
        "name": published["name"],
        "description": published.get("description") or "",
        "parameters": {
            "type": "object",
            "properties": {name: _property(about) for name, about in parameters.items()},
            "required": required,
        },
        "strict": False,
    }


def schema_of(python_type: str) -> dict[str, Any]:
    """The JSON schema of a type such as `List[int]`; an empty one, which takes anything, for what is unknown."""
    match = _TYPE.match(python_type)
    name, inner = (match[1].lower(), match[2]) if match else ("", None)
    if name in ("optional", "union") and inner:
        return schema_of(inner)
    kind = _KINDS.get(name)
    if kind is None:
        return {}
    return {"type": kind, "items": schema_of(inner)} if kind == "array" and inner else {"type": kind}


def _property(about: Mapping[str, Any]) -> dict[str, Any]:
    given = {"description": about.get("description"), "default": about.get("default")}
    kept = {key: value for key, value in given.items() if value not in (None, "")}
    return {**schema_of(str(about.get("type", ""))), **kept}


def _is_optional(about: Mapping[str, Any]) -> bool:
    return "optional" in str(about.get("type", "")).lower() or "default" in about


def _list(source: Mapping[str, Any], field: str, number: int) -> list[dict[str, Any]]:
    value = source.get(field)
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) and "name" in each for each in found):
        raise PreparationError(f"Row {number} has no {field} that is a list with names: {str(value)[:80]}")
    return found


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the questions of xlam-function-calling-60k.")
