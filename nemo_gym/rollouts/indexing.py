"""What the journal says about a record, so that a reader can list, sort and find records without opening them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_gym.results.records import REWARD, is_masked, numbers_in, usage_of
from nemo_gym.rollouts.keys import NG_ENVIRONMENT_SERVER_KEY, NG_PERF_KEY
from nemo_gym.rollouts.materialise import agent_of

_TOOLS = 8
_METRICS = 12
_NAME_CHARACTERS = 64
_ANSWER_CHARACTERS = 80
_ANSWERS = ("extracted_answer", "answer")
_CALLS = frozenset({"function_call", "mcp_call"})
_TOOL_OUTPUT = "function_call_output"


def index_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a completion entry that come from its record; what a record doesn't have is left out.

    Small however large the record is: at most a few hundred bytes.
    """
    usage = usage_of(record)
    output = _output(record)
    fields = {
        "agent": agent_of(record),
        "server": record.get(NG_ENVIRONMENT_SERVER_KEY),
        "masked": is_masked(record) or None,
        "tokens": _pair(usage.get("input_tokens"), usage.get("output_tokens")),
        "turns": _turns(record, output),
        "tools": _tools(output),
        "answer": _answer(record),
        "metrics": _metrics(record),
    }
    return {name: value for name, value in fields.items() if value}


def _output(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    response = record.get("response")
    items = response.get("output") if isinstance(response, Mapping) else None
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _pair(read: object, written: object) -> list[int] | None:
    known = [value for value in (read, written) if isinstance(value, int) and not isinstance(value, bool)]
    return known if len(known) == 2 else None


def _turns(record: Mapping[str, Any], output: list[Mapping[str, Any]]) -> int | None:
    """As the record counts them, else how often the model wrote: it does so again after tools have answered."""
    perf = record.get(NG_PERF_KEY)
    counted = perf.get("num_turns") if isinstance(perf, Mapping) else None
    if isinstance(counted, int):
        return counted
    written_by_tools = [item.get("type") == _TOOL_OUTPUT for item in output]
    pairs = zip([True, *written_by_tools], written_by_tools, strict=False)
    return sum(before and not now for before, now in pairs) or None


def _tools(output: list[Mapping[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in output:
        name = item.get("name")
        if item.get("type") in _CALLS and isinstance(name, str) and (name in found or len(found) < _TOOLS):
            found[name[:_NAME_CHARACTERS]] = found.get(name[:_NAME_CHARACTERS], 0) + 1
    return found


def _answer(record: Mapping[str, Any]) -> str | None:
    for name in _ANSWERS:
        value = record.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)[:_ANSWER_CHARACTERS]
    return None


def _metrics(record: Mapping[str, Any]) -> dict[str, int | float]:
    numbers = {name: value for name, value in numbers_in(record).items() if name not in (REWARD, "mask_sample")}
    return dict(list(numbers.items())[:_METRICS])
