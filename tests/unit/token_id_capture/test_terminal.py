"""Which call a rollout ended with."""

from typing import Any

from nemo_gym.token_id_capture.records import TokenEntry
from nemo_gym.token_id_capture.staging import resolve_terminal
from tests.unit.token_id_capture.calls import call, function_call, function_output, said, user


def _calls() -> list[TokenEntry]:
    tool = function_call("t", "f", "{}")
    first = call("a", [1], [2], output=[tool], response_id="resp-a")
    asked = [user("hi"), tool, function_output("t", "42")]
    second = call("b", [1, 2, 3], [4], parent=first, asked=asked, output=[said("It is 42.")], response_id="resp-b")
    return [first, second]


def _response(*items: dict[str, Any], response_id: str = "another") -> dict[str, Any]:
    return {"id": response_id, "output": list(items)}


def _named(entries: list[TokenEntry], *args: Any, **kwargs: Any) -> tuple[str, str | None, str]:
    found = resolve_terminal(entries, *args, **kwargs)
    return found.method, found.call_id, found.reason


def test_the_whole_conversation_bears_witness() -> None:
    items = [function_call("t", "f", "{}"), function_output("t", "42"), said("It is 42.")]
    assert _named(_calls(), _response(*items)) == ("content", "b", "attributed")


def test_the_last_answer_alone_bears_witness() -> None:
    assert _named(_calls(), _response(said("It is 42."))) == ("content", "b", "attributed")


def test_the_last_words_bear_witness_when_the_rest_was_edited() -> None:
    items = [function_call("t", "f", '{"edited": true}'), function_output("t", "42"), said("It is 42.")]
    assert _named(_calls(), _response(*items)) == ("content", "b", "attributed")


def test_the_response_id_bears_witness() -> None:
    assert _named(_calls(), _response(said("paraphrased"), response_id="resp-b")) == ("response_id", "b", "attributed")


def test_a_given_call_comes_first_and_has_to_exist() -> None:
    assert _named(_calls(), None, "a") == ("explicit", "a", "attributed")
    found = resolve_terminal(_calls(), _response(said("It is 42.")), "gone")
    assert (found.call_id, found.reason, found.is_declared) == (None, "explicit_call_not_captured", True)


def test_a_declared_response_has_to_be_exactly_one() -> None:
    assert _named(_calls(), None, declared_response_id="resp-b") == ("declared", "b", "attributed")
    assert _named(_calls(), None, declared_response_id="gone")[1:] == (None, "declared_response_not_captured")
    twice = [*_calls(), call("c", [9], [9], response_id="resp-b")]
    found = resolve_terminal(twice, _response(said("It is 42.")), declared_response_id="resp-b")
    assert (found.call_id, found.reason, found.is_declared) == (None, "declared_response_ambiguous", True)


def test_witnesses_that_disagree_prove_nothing() -> None:
    assert _named(_calls(), _response(said("It is 42."), response_id="resp-a"))[1:] == (None, "witnesses_disagree")
    assert _named(_calls(), _response(said("It is 42.")), "a")[1:] == (None, "witnesses_disagree")


def test_calls_of_the_same_tokens_are_the_same_witness() -> None:
    twins = [call("b", [1], [2], output=[said("x")]), call("a", [1], [2], output=[said("x")])]
    assert _named(twins, _response(said("x"))) == ("content", "a", "attributed")
    others = [call("b", [1], [2], output=[said("x")]), call("a", [1], [3], output=[said("x")])]
    assert _named(others, _response(said("x")))[1:] == (None, "ambiguous_content")


def test_an_answer_that_nobody_gave_has_no_witness() -> None:
    assert _named(_calls(), _response(said("else"))) == ("none", None, "no_witness")
    assert _named(_calls(), None) == ("none", None, "no_witness")
    assert _named([], _response()) == ("none", None, "no_witness")
