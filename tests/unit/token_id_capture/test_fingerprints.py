"""What counts as the same conversation, whatever dialect it is told in."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.token_id_capture.fingerprints import (
    ENVELOPE_ROLE,
    assistant_fingerprint,
    conversation_digest,
    with_envelope,
)
from tests.unit.token_id_capture.calls import function_call, function_output, said, user

_TEXTS = st.text(min_size=1, max_size=20)
_ARGUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=4)
_TURNS = st.lists(
    st.tuples(_TEXTS, st.lists(st.tuples(_TEXTS, _TEXTS, _ARGUMENTS), max_size=3)), min_size=1, max_size=4
)

Turns = list[tuple[str, list[tuple[str, str, dict[str, Any]]]]]


def _responses(turns: Turns) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [user("go")]
    for text, calls in turns:
        items.append(said(text))
        items += [function_call(call_id, name, json.dumps(arguments)) for call_id, name, arguments in calls]
        items.append(user("more"))
    return items


def _chat(turns: Turns) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for text, calls in turns:
        tool_calls = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a, indent=2)}}
            for i, n, a in calls
        ]
        messages.append({"role": "assistant", "content": text, "tool_calls": tool_calls})
        messages.append({"role": "user", "content": [{"type": "text", "text": "more"}]})
    return messages


def _messages(turns: Turns) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    for text, calls in turns:
        blocks = [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]
        messages.append({"role": "assistant", "content": [{"type": "text", "text": text}, *blocks]})
        messages.append({"role": "user", "content": "more"})
    return messages


@given(_TURNS)
def test_the_three_dialects_have_one_fingerprint(turns: Turns) -> None:
    expected = assistant_fingerprint(_responses(turns))
    assert expected != ""
    assert assistant_fingerprint(_chat(turns)) == expected
    assert assistant_fingerprint(_messages(turns)) == expected


@given(_TURNS, _TURNS)
def test_different_words_have_different_fingerprints(first: Turns, second: Turns) -> None:
    same = assistant_fingerprint(_responses(first)) == assistant_fingerprint(_responses(second))
    assert same == (first == second)


@given(st.lists(st.tuples(_TEXTS, _TEXTS), min_size=1, max_size=3))
def test_text_does_not_run_from_one_part_into_the_next(pairs: list[tuple[str, str]]) -> None:
    for left, right in pairs:
        assert assistant_fingerprint([said(left), said(right)]) != assistant_fingerprint([said(left + right)])


@given(_ARGUMENTS)
def test_arguments_are_compared_as_json(arguments: dict[str, Any]) -> None:
    plain = json.dumps(arguments)
    spaced = json.dumps(dict(reversed(arguments.items())), indent=3)
    one, other = ([function_call("c", "f", text)] for text in (plain, spaced))
    assert assistant_fingerprint(one) == assistant_fingerprint(other)


def test_arguments_that_are_no_json_are_compared_without_space_around() -> None:
    first, second, third = ([function_call("c", "f", text)] for text in ("{oops", "  {oops \n", "{oops!"))
    assert assistant_fingerprint(first) == assistant_fingerprint(second) != assistant_fingerprint(third)


def test_only_what_the_model_said_is_fingerprinted() -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    quiet = [user("a"), reasoning, function_output("c", "x")]
    assert assistant_fingerprint(quiet) == ""
    assert assistant_fingerprint([*quiet, said("b")]) == assistant_fingerprint([user("other"), said("b")])


def test_a_namespace_is_part_of_the_name() -> None:
    flat = function_call("c", "mail__send", "{}")
    assert assistant_fingerprint([flat]) == assistant_fingerprint([{**flat, "name": "send", "namespace": "mail"}])


def test_the_digest_of_a_conversation_sees_everything() -> None:
    base = [user("a"), said("b"), function_call("c", "f", "{}"), function_output("c", "x")]
    changed = [
        [user("A"), *base[1:]],
        [{"role": "system", "content": "a"}, *base[1:]],
        [base[0], said("B"), *base[2:]],
        [*base[:2], function_call("d", "f", "{}"), base[3]],
        [*base[:3], function_output("c", "y")],
        base[:3],
    ]
    digests = {conversation_digest(items) for items in [base, *changed]}
    assert len(digests) == len(changed) + 1


def test_images_and_other_blocks_count_by_type_and_content() -> None:
    image = {"type": "input_image", "image_url": "data:1", "detail": "low"}
    items = [{"role": "user", "content": [image]}]
    turned = [{"role": "user", "content": [dict(reversed(image.items()))]}]
    other = [{"role": "user", "content": [{**image, "image_url": "data:2"}]}]
    assert conversation_digest(items) == conversation_digest(turned) != conversation_digest(other)


def test_instructions_and_tools_stand_before_the_items() -> None:
    items = with_envelope([user("a")], instructions="be kind", tools=[{"name": "f"}])
    assert items == [
        {"role": ENVELOPE_ROLE, "content": '{"instructions":"be kind","tools":[{"name":"f"}]}'},
        user("a"),
    ]
    assert with_envelope([user("a")]) == [user("a")]
    assert assistant_fingerprint(items) == ""
