from __future__ import annotations

from collections.abc import Callable

import pytest

from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.testing.responses import call_output
from nemo_gym.verifiers import response_text as rules
from tests.unit.verifiers.responses import call, message, reasoning, response

TALK = response(message("a ", "b"), reasoning(), call("f", {}), message(" c", "d "))
CASES = [
    (TALK, {"all_text": "a b cd ", "assistant_text": "a \nb\n c\nd", "last_assistant_text": "c\nd"}),
    (TALK, {"last_item_text": " c", "closing_text": "d "}),
    (response(message("a"), reasoning()), {"all_text": "a", "last_assistant_text": "a", "last_item_text": ""}),
    (response(message("a"), call("f", {})), {"closing_text": "", "last_item_text": ""}),
    (response(), dict.fromkeys(("all_text", "assistant_text", "last_assistant_text", "last_item_text"), "")),
    (response(message()), {"last_item_text": "", "closing_text": "", "last_assistant_text": ""}),
]


@pytest.mark.parametrize(("given", "expected"), CASES)
def test_each_rule(given: NeMoGymResponse, expected: dict[str, str]) -> None:
    def said(name: str) -> str:
        rule: Callable[[NeMoGymResponse], str] = getattr(rules, name)
        return rule(given)

    assert {name: said(name) for name in expected} == expected


def test_messages_and_outputs_each_by_itself() -> None:
    parts = call_output("") | {"output": [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}]}
    given = response(message("a ", "b"), call_output({"n": 1}), message(), call_output("plain"), parts)
    assert rules.assistant_texts(given) == ["a \nb", ""]
    assert rules.call_outputs(given) == ['{"n": 1}', "plain", "x\ny"]


def test_calls_are_in_order() -> None:
    given = response(call("f", {}), message("x"), call("g", {"a": 1}))
    assert [each.name for each in rules.function_calls(given)] == ["f", "g"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ("plain", "plain"),
        ([], ""),
        (None, ""),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "system", "content": "c"}], "b"),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}, {"text": "b"}],
                }
            ],
            "a\nb",
        ),
    ],
)
def test_the_question_is_what_the_user_said_last(messages: object, expected: str) -> None:
    assert rules.last_user_text(messages) == expected
