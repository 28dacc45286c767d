from __future__ import annotations

from itertools import permutations
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nemo_gym.verifiers.tool_calls import (
    ArgumentRules,
    ArgumentsProblem,
    Difference,
    ToolCall,
    calls_of,
    contains,
    difference,
    greedy_matches,
    maximum_matches,
    maximum_matching,
    ordered_matches,
    parse_arguments,
    recorded,
    same_value,
    word_share,
)
from tests.unit.verifiers.responses import call, message, response

DEEP = '{"a": ' * 100 + "{}" + "}" * 100
UNREADABLE = ['{"a": 1', "", "{'a': 1}", '{"a": 1,}', '{"a": NaN}', "[" * 100_000, "nonsense",
              '{"a": 1e999}', '{"a": ' + "9" * 400 + "}", r'{"a": "\ud800"}', r'{"\udfff": 1}', DEEP,
              "[" * 101 + "]" * 101, '{"a": "\x01"}', "\ufeff{}", "{}{}"]  # fmt: skip


@pytest.mark.parametrize("text", [*UNREADABLE, None])
def test_arguments_that_are_no_json(text: str | None) -> None:
    """B71."""
    assert parse_arguments(text).problem is ArgumentsProblem.NOT_JSON
    assert parse_arguments(text).values == {}


def test_arguments_as_deep_as_they_may_be() -> None:
    assert parse_arguments("[" * 100 + "]" * 100).problem is ArgumentsProblem.NOT_AN_OBJECT
    assert parse_arguments('{"a": ' + "[" * 99 + "]" * 99 + "}").problem is None
    wide = '{"a": [' + ",".join(['{"b": "[[["}'] * 300) + "]}"
    assert parse_arguments(wide).problem is None


def test_what_is_read_can_be_sent_on() -> None:
    """A record with an infinite number, or one of 400 digits, could not be read again by who is sent it."""
    for text in (
        *UNREADABLE,
        '{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1e308, "d": "\\ud83d\\ude00"}',
    ):
        sent = orjson.dumps(recorded([ToolCall.of("f", text)]))
        assert orjson.loads(sent)[0]["name"] == "f"
    assert parse_arguments('{"a": 12345678901234567890123}').values == orjson.loads('{"a": 12345678901234567890123}')


def test_calls_as_records_keep_them() -> None:
    calls = [ToolCall.of("f", {"a": 1}), ToolCall.of("g", "[1]"), ToolCall.of("h", "{"), ToolCall.of("i", "null")]
    assert recorded(calls) == [
        {"name": "f", "arguments": {"a": 1}},
        {"name": "g", "arguments": [1]},
        {"name": "h", "arguments": {}},
        {"name": "i", "arguments": None},
    ]


@pytest.mark.parametrize(
    ("text", "decoded"), [("[1, 2]", [1, 2]), ('"x"', "x"), ("3", 3), ("null", None), ("true", True)]
)
def test_arguments_that_are_no_object(text: str, decoded: Any) -> None:
    """B72."""
    read = parse_arguments(text)
    assert (read.problem, read.values, read.decoded) == (ArgumentsProblem.NOT_AN_OBJECT, {}, decoded)


def test_calls_of_a_response() -> None:
    calls = calls_of(response(message("x"), call("f", {"a": 1}), call("g", "{")))
    assert [(each.name, dict(each.arguments.values)) for each in calls] == [("f", {"a": 1}), ("g", {})]


CONTAINED = [
    ({"a": 1}, {"a": 1}, True, True),
    ({"a": 1}, {"a": 1, "b": 2}, True, True),
    ({"a": 1, "b": 2}, {"a": 1}, False, False),
    ({"a": 1}, {"a": True}, True, False),
    ({"a": 1}, {"a": 1.0}, True, True),
    ({"a": 1}, {"a": "1"}, False, False),
    ({"a": [1, {"b": 0}]}, {"a": [1, {"b": False}]}, True, False),
    ({}, {"a": 1}, True, True),
    ({}, "{", True, False),
    ({"a": 1}, "[]", False, False),
    ('{"a": 1}', {"a": 1}, True, True),
]


@pytest.mark.parametrize(("expected", "actual", "loose", "strict"), CONTAINED)
def test_containing_arguments(expected: Any, actual: Any, loose: bool, strict: bool) -> None:
    one, other = ToolCall.of("f", expected), ToolCall.of("f", actual)
    assert (contains(one, other), contains(one, other, strict_types=True)) == (loose, strict)
    assert not contains(one, ToolCall.of("g", actual))


def test_matching_in_any_order() -> None:
    calls = [ToolCall.of("f", {"a": 1}), ToolCall.of("f", {"a": 2})]
    assert greedy_matches(calls, calls[::-1], contains) == maximum_matches(calls, calls[::-1], contains) == 2
    assert ordered_matches(calls, calls[::-1], contains) == 0
    assert ordered_matches(calls, calls, contains) == 2
    assert maximum_matches([calls[0], calls[0]], [calls[0]], contains) == 1, "each is used once"


def test_a_wide_expectation_may_take_what_a_narrow_one_needs() -> None:
    wide, narrow = ToolCall.of("f", {}), ToolCall.of("f", {"a": 1})
    made = [ToolCall.of("f", {"a": 1}), ToolCall.of("f", {"a": 2})]
    assert greedy_matches([wide, narrow], made, contains) == 1
    assert maximum_matches([wide, narrow], made, contains) == 2


def test_who_goes_with_whom() -> None:
    """The third exchange goes over both that were made before it."""
    edges = {0: {0}, 1: {0, 1}, 2: {1, 2}, 3: set()}
    order = [2, 1, 0, 3]
    found = maximum_matching(order, [0, 1, 2], lambda one, other: other in edges[one])
    assert {order[each]: place for each, place in found.items()} == {0: 0, 1: 1, 2: 2}
    assert maximum_matching([2, 1], [2], lambda one, other: True) == {0: 0}
    assert maximum_matching([], [1], lambda one, other: True) == {}


def test_a_long_chain_of_exchanges() -> None:
    """As deep as there are calls: no function of Python may call itself so often."""
    count = 1500
    found = maximum_matching(
        [*range(1, count), 0], range(count), lambda one, other: other == 0 if one == 0 else other in (one - 1, one)
    )
    assert len(found) == count


@given(st.lists(st.sets(st.integers(0, 4), max_size=4), max_size=5))
def test_no_matching_is_larger(edges: list[set[int]]) -> None:
    most = max(
        sum(place in own for place, own in zip(order, edges, strict=False))
        for order in permutations(range(5), len(edges))
    )
    found = maximum_matching(edges, range(5), lambda own, place: place in own)
    assert len(found) == len(set(found.values())) == most
    assert all(place in edges[each] for each, place in found.items())


DIFFERENCES = [
    ({"a": 1}, {"a": 1}, None),
    ({"a": 1}, {"a": "1"}, Difference.TYPE),
    ({"a": 1}, {"a": 1, "b": 2}, Difference.KEYS),
    ({"a": {"b": [1, 2]}}, {"a": {"b": [1]}}, Difference.LENGTH),
    ([1, [2]], [1, [3]], Difference.VALUE),
    (1, True, None),
    (1.0, 1, Difference.TYPE),
    (1.0, 1.0000001, None),
    (1.0, 1.1, Difference.VALUE),
    ("one", "two", Difference.VALUE),
    ("find the red house", "red house please", None),
    ("find the red house", "nothing of that", Difference.VALUE),
    ("one two", "one", Difference.VALUE),
    (None, None, None),
    (None, 0, Difference.TYPE),
]


@pytest.mark.parametrize(("expected", "actual", "found"), DIFFERENCES)
def test_differences(expected: Any, actual: Any, found: Difference | None) -> None:
    assert difference(expected, actual) is found


def test_strict_types() -> None:
    rules = ArgumentRules(strict_types=True)
    assert difference(1, True, rules) is Difference.TYPE
    assert difference(1.0, 1, rules) is None


def test_word_share() -> None:
    assert word_share("a b", "B a") == 0.5
    assert word_share("a a", "a b") == 0.25
    assert word_share("", "") == 0.0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1, max_size=3)


@given(ARGUMENTS, VALUES, st.data())
def test_a_changed_argument_never_matches(arguments: dict[str, Any], value: Any, data: st.DataObject) -> None:
    """B83."""
    name = data.draw(st.sampled_from(sorted(arguments)))
    assume(not same_value(arguments[name], value))
    right = ToolCall.of("f", arguments)
    assert contains(right, right, strict_types=True)
    for wrong in ({**arguments, name: value}, {key: own for key, own in arguments.items() if key != name}):
        assert not contains(right, ToolCall.of("f", wrong), strict_types=True)
        assert difference(arguments, wrong, ArgumentRules(strict_types=True)) is not None
