"""The three parts of the reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.verifiers.tool_calls import ToolCall, calls_of, contains
from nemo_gym.verifiers.verdicts import RowError


def has_form(response: NeMoGymResponse) -> bool:
    """One call, and no message."""
    kinds = [item.type for item in response.output]
    return kinds.count("function_call") == 1 and "message" not in kinds


def has_valid_arguments(calls: Sequence[ToolCall], tools: Sequence[Any], *, declared_only: bool = False) -> bool:
    """Whether the first call has a JSON object with all that its tool requires.

    A tool the row doesn't declare requires nothing; with `declared_only` its arguments are never valid.
    """
    if not calls or calls[0].arguments.problem is not None:
        return False
    tool = next((each for each in tools if isinstance(each, Mapping) and each.get("name") == calls[0].name), None)
    if tool is None:
        return not declared_only
    required = (tool.get("parameters") or {}).get("required") or []
    return all(name in calls[0].arguments.values for name in required)


def is_correct(calls: Sequence[ToolCall], expected: ToolCall | None, *, strict_types: bool = False) -> bool:
    """Whether one of the calls is the expected one, with whatever further arguments."""
    return expected is not None and any(contains(expected, call, strict_types=strict_types) for call in calls)


def expected_call(expected: Mapping[str, Any]) -> ToolCall | None:
    """The call of a row, whose arguments may be JSON text; None for an empty one. RowError for what is no call."""
    if not expected:
        return None
    name, arguments = expected.get("name"), expected.get("arguments")
    if isinstance(name, str) and isinstance(arguments, Mapping | str | None):
        call = ToolCall.of(name, {} if arguments is None else arguments)
        if call.arguments.problem is None:
            return call
    raise RowError(f"expected_call is {str(dict(expected))[:200]}, which is no call with a name and arguments")


def components_of(
    response: NeMoGymResponse,
    tools: Sequence[Any],
    expected: ToolCall | None,
    *,
    declared_only: bool = False,
    strict_types: bool = False,
) -> dict[str, float]:
    """The parts of the reward by name, each 0 or 1."""
    calls = calls_of(response)
    return {
        "format": float(has_form(response)),
        "schema_valid": float(has_valid_arguments(calls, tools, declared_only=declared_only)),
        "correctness": float(is_correct(calls, expected, strict_types=strict_types)),
    }
