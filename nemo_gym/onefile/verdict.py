"""What a verifier is given, and what it may return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.serve.redaction import encodable
from nemo_gym.verifiers.response_text import last_assistant_text
from nemo_gym.verifiers.tool_calls import parse_arguments


@dataclass(frozen=True)
class Call:
    """A call a model made: arguments are empty where they can't be read; `output` is what it was answered."""

    name: str
    arguments: dict[str, Any]
    output: str = ""


@dataclass(frozen=True)
class Response:
    """What a model did with a task: what it said last, the calls it made, and everything as it came (`raw`)."""

    text: str
    calls: list[Call]
    raw: NeMoGymResponse

    @classmethod
    def of(cls, raw: NeMoGymResponse) -> Response:
        outputs = {item.call_id: _text(item.output) for item in raw.output if item.type == "function_call_output"}
        calls = [
            Call(item.name, dict(parse_arguments(item.arguments).values), outputs.get(item.call_id, ""))
            for item in raw.output
            if item.type == "function_call"
        ]
        return cls(last_assistant_text(raw), calls, raw)


@dataclass(frozen=True)
class Verdict:
    """A reward, why, and the parts it is made of."""

    reward: float
    reason: str = ""
    parts: dict[str, float] = field(default_factory=dict)


def verdict_of(returned: Any) -> Verdict:
    """What a verifier's return value means.

    A number or a bool is the reward, `(number, reason)` adds why. A mapping names parts of a reward: `reward`, or the
    sum of the others, is the whole, and `reason` says why. Raises ValueError for anything else.
    """
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], str):
        return Verdict(_number("reward", returned[0]), encodable(returned[1]))
    if not isinstance(returned, Mapping):
        return Verdict(_number("reward", returned))
    numbers = {str(name): _number(name, value) for name, value in returned.items() if name != "reason"}
    reward = numbers.pop("reward", None)
    if reward is None and not numbers:
        raise ValueError("the mapping names no reward")
    reason = returned.get("reason") or ""
    return Verdict(sum(numbers.values()) if reward is None else reward, encodable(str(reason)), numbers)


def _number(name: object, value: Any) -> float:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # a number of an array library
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, which is no finite number")
    return float(value)


def _text(output: Any) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(text for part in output or () if isinstance(text := getattr(part, "text", None), str))
