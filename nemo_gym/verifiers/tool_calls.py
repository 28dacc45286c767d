"""Comparing the calls a model made with those that were expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import orjson

from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.verifiers.response_text import function_calls

E = TypeVar("E")
A = TypeVar("A")

MAX_NESTING = 100
"""Levels of arrays and objects in arguments: deeper ones fit into no record, nor any tool's request."""


class ArgumentsProblem(StrEnum):
    """Why the arguments of a call are none."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call as values. `problem` is set where there are none; `decoded` is what the JSON said, also
    where that is no object."""

    values: Mapping[str, Any]
    problem: ArgumentsProblem | None = None
    decoded: Any = None


@dataclass(frozen=True)
class ToolCall:
    """A call by a model, or an expected one."""

    name: str
    arguments: Arguments

    @classmethod
    def of(cls, name: str, arguments: str | Mapping[str, Any] | None) -> ToolCall:
        """From a row or an item: arguments as JSON text, or as values already."""
        if isinstance(arguments, Mapping):
            return cls(name, Arguments(arguments, decoded=arguments))
        return cls(name, parse_arguments(arguments))


def parse_arguments(text: str | None) -> Arguments:
    """Read the arguments of a call; never raises.

    What can't be sent on as JSON is none: `NaN`, `1e999`, half a surrogate pair, more than MAX_NESTING levels, and an
    empty text. Integers of more than 64 bits are read as floats, as they are in rows.
    """
    try:
        decoded = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return Arguments({}, ArgumentsProblem.NOT_JSON)
    if _is_nested_deeper(decoded, MAX_NESTING, text or ""):
        return Arguments({}, ArgumentsProblem.NOT_JSON)
    if not isinstance(decoded, dict):
        return Arguments({}, ArgumentsProblem.NOT_AN_OBJECT, decoded)
    return Arguments(decoded, None, decoded)


def _is_nested_deeper(value: Any, limit: int, text: str) -> bool:
    if text.count("[") + text.count("{") <= limit:
        return False
    level = [value]
    for _ in range(limit + 1):
        level = [inner for each in level for inner in _inside(each)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    """What a container holds; of an empty one, itself no longer."""
    if isinstance(value, dict):
        return value.values() or (None,)
    return (value or (None,)) if isinstance(value, list) else ()


def calls_of(response: NeMoGymResponse) -> list[ToolCall]:
    """The calls of a response in order."""
    return [ToolCall.of(call.name, call.arguments) for call in function_calls(response)]


def recorded(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """Calls as records keep them: `name`, and `arguments` as they were decoded, `{}` for what is no JSON."""
    return [{"name": call.name, "arguments": _decoded(call.arguments)} for call in calls]


def contains(expected: ToolCall, actual: ToolCall, *, strict_types: bool = False) -> bool:
    """Whether a call has the expected name and at least the expected arguments.

    Arguments that can't be read contain nothing, so that such a call still matches where none are expected.
    `strict_types`: they never match then, and `true` is not 1, which it is to Python.
    """
    if expected.name != actual.name or (strict_types and actual.arguments.problem is not None):
        return False
    wanted, given = expected.arguments.values, actual.arguments.values
    equal = same_value if strict_types else _equal
    return all(name in given and equal(value, given[name]) for name, value in wanted.items())


def same_value(one: Any, other: Any) -> bool:
    """Equal as JSON: booleans equal only booleans, `1` equals `1.0`, objects whatever the order of their keys."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return bool(one == other)


def greedy_matches(expected: Sequence[E], actual: Sequence[A], matches: Callable[[E, A], bool]) -> int:
    """How many expected ones find an actual one in any order, each takes the first that is left. A wide expectation
    may take what a narrow one needed: `maximum_matches` doesn't have that fault."""
    left = list(actual)
    found = 0
    for each in expected:
        place = next((number for number, other in enumerate(left) if matches(each, other)), None)
        if place is not None:
            del left[place]
            found += 1
    return found


def maximum_matches(expected: Sequence[E], actual: Sequence[A], matches: Callable[[E, A], bool]) -> int:
    """The most expected ones that find actual ones of their own, in any order."""
    return len(maximum_matching(expected, actual, matches))


def maximum_matching(expected: Sequence[E], actual: Sequence[A], matches: Callable[[E, A], bool]) -> dict[int, int]:
    """Which expected one goes with which actual one, by their numbers, so that the most do (augmenting paths, Kuhn
    1955)."""
    edges = [[number for number, other in enumerate(actual) if matches(each, other)] for each in expected]
    taken: dict[int, int] = {}
    owner: dict[int, int] = {}
    for start in range(len(expected)):
        reached_by: dict[int, int] = {}
        end = _free_end(start, edges, owner, reached_by)
        while end is not None:
            each = reached_by[end]
            owner[end] = each
            before = taken.get(each)
            taken[each] = end
            end = before
    return taken


def _free_end(start: int, edges: list[list[int]], owner: dict[int, int], reached_by: dict[int, int]) -> int | None:
    """An actual one nobody owns, at the end of a path of exchanges from `start`; the path is in `reached_by`."""
    waiting = [start]
    while waiting:
        each = waiting.pop()
        for number in edges[each]:
            if number in reached_by:
                continue
            reached_by[number] = each
            if number not in owner:
                return number
            waiting.append(owner[number])
    return None


def ordered_matches(expected: Sequence[E], actual: Sequence[A], matches: Callable[[E, A], bool]) -> int:
    """How many match at their own place."""
    return sum(matches(each, other) for each, other in zip(expected, actual, strict=False))


class Difference(StrEnum):
    """The first way in which an argument differs from the expected one."""

    TYPE = "type"
    KEYS = "keys"
    LENGTH = "length"
    VALUE = "value"


@dataclass(frozen=True)
class ArgumentRules:
    """How far arguments may differ.

    Texts of at least two words each are alike when the words they share, over all words of both, are at least
    `word_share` (0.5 is the most there is); shorter ones must be equal. Floats may differ by less than `float_gap`.
    `strict_types`: a boolean is no integer, and an integer serves where a float is expected.
    """

    word_share: float = 0.1
    float_gap: float = 1e-6
    strict_types: bool = False


def difference(expected: Any, actual: Any, rules: ArgumentRules | None = None) -> Difference | None:
    """The first difference between two JSON values, None for alike ones. Keys must be the same, and lists as long."""
    rules = rules or ArgumentRules()
    if not _has_type_of(expected, actual, rules):
        return Difference.TYPE
    if isinstance(expected, dict):
        if expected.keys() != actual.keys():
            return Difference.KEYS
        return _first_difference(((value, actual[key]) for key, value in expected.items()), rules)
    if isinstance(expected, list):
        if len(expected) != len(actual):
            return Difference.LENGTH
        return _first_difference(zip(expected, actual, strict=True), rules)
    return None if _alike(expected, actual, rules) else Difference.VALUE


def word_share(one: str, other: str) -> float:
    """Words two texts share, counted as often as both have them, over the words of both; case does not count."""
    ones, others = Counter(one.lower().split()), Counter(other.lower().split())
    total = ones.total() + others.total()
    return (ones & others).total() / total if total else 0.0


def _first_difference(pairs: Any, rules: ArgumentRules) -> Difference | None:
    found = (difference(expected, actual, rules) for expected, actual in pairs)
    return next((each for each in found if each is not None), None)


def _has_type_of(expected: Any, actual: Any, rules: ArgumentRules) -> bool:
    if not rules.strict_types:
        return isinstance(actual, type(expected))
    if isinstance(expected, bool) or isinstance(actual, bool):
        return type(expected) is type(actual)
    if isinstance(expected, float):
        return isinstance(actual, int | float)
    return isinstance(actual, type(expected))


def _alike(expected: Any, actual: Any, rules: ArgumentRules) -> bool:
    if isinstance(expected, float):
        return bool(abs(expected - actual) < rules.float_gap)
    if isinstance(expected, str):
        if min(len(expected.split()), len(actual.split())) < 2:
            return bool(expected == actual)
        return word_share(expected, actual) >= rules.word_share
    return bool(expected == actual)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def _decoded(arguments: Arguments) -> Any:
    return {} if arguments.problem is ArgumentsProblem.NOT_JSON else arguments.decoded
