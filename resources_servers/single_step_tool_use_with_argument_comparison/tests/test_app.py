from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from nemo_gym.testing.responses import call, message, reasoning, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.single_step_tool_use_with_argument_comparison.app import (
    SingleStepToolUseArgumentComparisonResourcesServer,
    SingleStepToolUseArgumentComparisonResourcesServerConfig,
)
from resources_servers.single_step_tool_use_with_argument_comparison.common.verification_utils import (
    ExpectedAction,
    FunctionCallAction,
    FunctionCallBatchAction,
    MessageAction,
    ParallelToolCallRewardMode,
    StepRewardCategory,
    ToolCallComparatorConfig,
)

FOLDER = Path(__file__).parents[1]
NAME = FOLDER.name
Category = StepRewardCategory


def settings(**comparator: Any) -> dict[str, Any]:
    return {"tool_call_comparator_config": {"word_count_similarity_threshold": 0.1, **comparator}}


def act(name: str, arguments: Any) -> dict[str, Any]:
    """The expected call of a tool."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "name": name, "arguments": text}


def batch(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_batch", "calls": list(calls)}


def asked(expected: dict[str, Any], *output: Any) -> dict[str, Any]:
    return verify_request({"expected_action": expected}, *output)


def case(name: str, request: dict[str, Any], reward: float, category: Category, **comparator: Any) -> Case:
    return Case(name, request, reward, {"category": category}, settings(**comparator))


def compared(expected: Any, actual: Any) -> dict[str, Any]:
    """One argument as it is expected and as it was given."""
    return asked(act("f", {"a": expected}), call("f", {"a": actual}))


SAY = {"type": "message", "content": "Which address?"}
OSLO = act("forecast", {"city": "Oslo"})
ROME = act("forecast", {"city": "Rome"})
OSLO_CALL, ROME_CALL, BERN_CALL = (call("forecast", {"city": city}) for city in ("Oslo", "Rome", "Bern"))
BOTH = batch(OSLO, ROME)
PARALLEL = {"parallel_tool_call_rewarding": True}
FRACTIONAL = {**PARALLEL, "parallel_tool_call_reward_mode": "fractional"}
F1 = {**PARALLEL, "parallel_tool_call_reward_mode": "f1"}
SUBSET, SUPERSET, STRICT = {"allow_subset": True}, {"allow_superset": True}, {"strict_types": True}
RIGHT, RIGHT_BATCH = Category.EXPECTED_TOOL_CALL, Category.EXPECTED_TOOL_CALL_BATCH
TYPE, KEYS = Category.ARGUMENT_VALUE_TYPE_DIFFERENT, Category.ARGUMENT_OBJECT_KEYS_DIFFERENT
LENGTH, VALUE = Category.ARGUMENT_LIST_LENGTH_DIFFERENT, Category.ARGUMENT_VALUE_DIFFERENT
COUNT, OTHER_TOOL = Category.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT, Category.UNEXPECTED_TOOL

CASES = [
    # speaking or acting
    case("a message", asked(SAY, "Anything."), 1.0, Category.EXPECTED_CHAT_MESSAGE_FOUND),
    case("a message after a blank one", asked(SAY, message("", " "), "Hi"), 1.0, Category.EXPECTED_CHAT_MESSAGE_FOUND),
    case("a call instead", asked(SAY, OSLO_CALL), 0.0, Category.NO_EXPECTED_CHAT_MESSAGE),
    case("a call beside a message", asked(SAY, "Hi", OSLO_CALL), 0.0, Category.NO_EXPECTED_CHAT_MESSAGE),
    case("nothing", asked(SAY), 0.0, Category.NO_ACTION_FOUND),
    case("nothing, for a call", asked(OSLO), 0.0, Category.NO_ACTION_FOUND),
    case("nothing, for several", asked(BOTH), 0.0, Category.NO_ACTION_FOUND),
    case("thoughts only", asked(SAY, reasoning()), 0.0, Category.NO_ACTION_FOUND),
    case("an empty message", asked(SAY, ""), 0.0, Category.NO_ACTION_FOUND),
    case("a blank message", asked(SAY, " \n\t"), 0.0, Category.NO_ACTION_FOUND),
    case("somebody else's message", asked(SAY, {"type": "message", "role": "user", "content": "Hi"}), 0.0,
         Category.NO_ACTION_FOUND),
    case("a message instead", asked(OSLO, "Sunny."), 0.0, Category.NO_EXPECTED_TOOL_CALL),
    case("a message instead of several", asked(BOTH, "Sunny."), 0.0, Category.NO_EXPECTED_TOOL_CALL),
    case("a call as text", asked(OSLO, json.dumps(OSLO)), 0.0, Category.NO_EXPECTED_TOOL_CALL),
    # one call
    case("right", asked(OSLO, OSLO_CALL), 1.0, RIGHT),
    case("right, with words", asked(OSLO, reasoning(), "I'll look.", OSLO_CALL), 1.0, RIGHT),
    case("another city", asked(OSLO, ROME_CALL), 0.0, VALUE),
    case("another tool", asked(OSLO, call("air", {"city": "Oslo"})), 0.0, OTHER_TOOL),
    case("no JSON", asked(OSLO, call("forecast", "{")), 0.0, Category.ARGUMENTS_DECODE_ERROR),
    case("nothing for arguments", asked(act("f", {}), call("f", "")), 0.0, Category.ARGUMENTS_DECODE_ERROR),
    case("no arguments", asked(act("f", {}), call("f", "{}")), 1.0, RIGHT),
    case("a list for an object", asked(OSLO, call("forecast", "[]")), 0.0, TYPE),
    case("no object, as expected", asked(act("f", "[1]"), call("f", "[1]")), 1.0, RIGHT),
    # arguments
    case("one more", asked(OSLO, call("forecast", {"city": "Oslo", "days": 1})), 0.0, KEYS),
    case("one less", asked(act("f", {"a": 1, "b": 2}), call("f", {"a": 1})), 0.0, KEYS),
    case("in another order", asked(act("f", {"a": 1, "b": 2}), call("f", {"b": 2, "a": 1})), 1.0, RIGHT),
    case("keys deep inside", compared({"b": {"c": 1}}, {"b": {"d": 1}}), 0.0, KEYS),
    case("a longer list", compared([1, 2], [1, 2, 3]), 0.0, LENGTH),
    case("a list in another order", compared([1, 2], [2, 1]), 0.0, VALUE),
    case("text for a number", compared(5, "5"), 0.0, TYPE),
    case("null", compared(None, None), 1.0, RIGHT),
    case("something for null", compared(None, 0), 0.0, TYPE),
    case("another number", compared(5, 6), 0.0, VALUE),
    case("true for one", compared(1, True), 1.0, RIGHT),
    case("true for two", compared(2, True), 0.0, VALUE),
    case("one for true", compared(True, 1), 0.0, TYPE),
    case("true for one, strictly", compared(1, True), 0.0, TYPE, **STRICT),
    case("nearly the same float", compared(0.5, 0.5000001), 1.0, RIGHT),
    case("another float", compared(0.5, 0.51), 0.0, VALUE),
    case("a float that is near enough here", compared(0.5, 0.51), 1.0, RIGHT,
         floating_point_comparison_threshold=0.1),
    case("an integer for a float", compared(2.0, 2), 0.0, TYPE),
    case("an integer for a float, strictly", compared(2.0, 2), 1.0, RIGHT, **STRICT),
    case("a float for an integer", compared(2, 2.0), 0.0, TYPE),
    case("a word in other letters", compared("Oslo", "oslo"), 0.0, VALUE),
    case("a word among others", compared("Oslo", "in Oslo"), 0.0, VALUE),
    case("one word for several", compared("the city of Oslo", "Oslo"), 0.0, VALUE),
    case("some of the words", compared("front lamp never lit up", "the LAMP was dead"), 1.0, RIGHT),
    case("none of the words", compared("front lamp never lit up", "saddle too small"), 0.0, VALUE),
    case("all of the words are a half", compared("a b", "b a"), 1.0, RIGHT, word_count_similarity_threshold=0.5),
    case("more is not to be had", compared("a b", "a b"), 0.0, VALUE, word_count_similarity_threshold=0.51),
    case("words count as often as both have them", compared("a a a b", "a c d e"), 0.0, VALUE,
         word_count_similarity_threshold=0.2),
    # several calls, whose number doesn't count
    case("both", asked(BOTH, OSLO_CALL, ROME_CALL), 1.0, RIGHT_BATCH),
    case("both in another order", asked(BOTH, ROME_CALL, OSLO_CALL), 1.0, RIGHT_BATCH),
    case("both and another", asked(BOTH, BERN_CALL, ROME_CALL, OSLO_CALL), 1.0, RIGHT_BATCH),
    case("one among others", asked(OSLO, ROME_CALL, OSLO_CALL), 1.0, RIGHT_BATCH),
    case("a batch of one", asked(batch(OSLO), OSLO_CALL), 1.0, RIGHT_BATCH),
    case("one of both", asked(BOTH, OSLO_CALL), 0.0, COUNT),
    case("one twice", asked(BOTH, OSLO_CALL, OSLO_CALL), 0.0, VALUE),
    case("one right, one of another tool", asked(BOTH, OSLO_CALL, call("air", {})), 0.0, OTHER_TOOL),
    case("one right, one unreadable", asked(BOTH, OSLO_CALL, call("forecast", "{")), 0.0,
         Category.ARGUMENTS_DECODE_ERROR),
    case("the nearest of those left", asked(BOTH, call("air", {}), OSLO_CALL, call("forecast", {"c": 1})), 0.0, KEYS),
    case("one, but other ones were made", asked(OSLO, ROME_CALL, BERN_CALL), 0.0, VALUE),
    case("a broad call doesn't take a narrow one's",
         asked(batch(act("f", {"q": "red house"}), act("f", {"q": "red car"})),
               call("f", {"q": "red car"}), call("f", {"q": "house red"})), 1.0, RIGHT_BATCH,
         word_count_similarity_threshold=0.25),
    # several calls, whose number counts
    case("P both", asked(BOTH, ROME_CALL, OSLO_CALL), 1.0, RIGHT_BATCH, **PARALLEL),
    case("P one", asked(OSLO, OSLO_CALL), 1.0, RIGHT, **PARALLEL),
    case("P one more", asked(BOTH, ROME_CALL, OSLO_CALL, BERN_CALL), 0.0, COUNT, **PARALLEL),
    case("P one more than one", asked(OSLO, OSLO_CALL, ROME_CALL), 0.0, COUNT, **PARALLEL),
    case("P one less", asked(BOTH, OSLO_CALL), 0.0, COUNT, **PARALLEL),
    case("P one wrong", asked(BOTH, OSLO_CALL, BERN_CALL), 0.0, VALUE, **PARALLEL),
    case("P more is forgiven", asked(BOTH, ROME_CALL, OSLO_CALL, BERN_CALL), 1.0, RIGHT_BATCH, **PARALLEL, **SUPERSET),
    case("P more, less is not", asked(BOTH, ROME_CALL), 0.0, COUNT, **PARALLEL, **SUPERSET),
    case("P less is forgiven", asked(BOTH, ROME_CALL), 1.0, RIGHT_BATCH, **PARALLEL, **SUBSET),
    case("P less, more is not", asked(OSLO, ROME_CALL, OSLO_CALL), 0.0, COUNT, **PARALLEL, **SUBSET),
    case("P less, and wrong", asked(BOTH, BERN_CALL), 0.0, VALUE, **PARALLEL, **SUBSET),
    case("P both forgiven", asked(BOTH, OSLO_CALL, BERN_CALL, BERN_CALL), 0.0, VALUE, **PARALLEL, **SUBSET, **SUPERSET),
    case("share: half", asked(BOTH, OSLO_CALL, BERN_CALL), 0.5, VALUE, **FRACTIONAL),
    case("share: all", asked(BOTH, OSLO_CALL, ROME_CALL), 1.0, RIGHT_BATCH, **FRACTIONAL),
    case("share: none", asked(BOTH, BERN_CALL, BERN_CALL), 0.0, VALUE, **FRACTIONAL),
    case("share: of those made", asked(batch(OSLO, ROME, OSLO), OSLO_CALL, BERN_CALL), 0.5, VALUE,
         **FRACTIONAL, **SUBSET),
    case("share: with more", asked(BOTH, OSLO_CALL, BERN_CALL, ROME_CALL), 1.0, RIGHT_BATCH, **FRACTIONAL, **SUPERSET),
    case("f1: all", asked(BOTH, OSLO_CALL, ROME_CALL), 1.0, RIGHT_BATCH, **F1),
    case("f1: half", asked(BOTH, OSLO_CALL, BERN_CALL), 0.5, VALUE, **F1),
    case("f1: with more", asked(BOTH, OSLO_CALL, BERN_CALL, ROME_CALL), 0.8, COUNT, **F1, **SUPERSET),
    case("f1: with less", asked(batch(OSLO, ROME, OSLO), OSLO_CALL, ROME_CALL), 0.8, COUNT, **F1, **SUBSET),
    # what a model might write
    case("very deep", asked(OSLO, call("forecast", '{"city": ' * 5000 + "1" + "}" * 5000)), 0.0,
         Category.ARGUMENTS_DECODE_ERROR),
    case("half a surrogate pair", asked(OSLO, call("forecast", r'{"city": "\ud800"}')), 0.0,
         Category.ARGUMENTS_DECODE_ERROR),
    case("beyond all floats", asked(act("f", {"a": 0.5}), call("f", '{"a": 1e999}')), 0.0,
         Category.ARGUMENTS_DECODE_ERROR),
    case("a very long number", asked(act("f", {"a": 5}), call("f", '{"a": ' + "5" * 5000 + "}")), 0.0,
         Category.ARGUMENTS_DECODE_ERROR),
    case("very long", compared("a short text", "a " * 300_000), 0.0, VALUE),
    case("very many", asked(BOTH, *[BERN_CALL] * 2000), 0.0, VALUE),
    case("odd characters", compared("Oslo", "Oslo\x00\u202e"), 0.0, VALUE),
    case("an empty name", asked(OSLO, call("", {"city": "Oslo"})), 0.0, OTHER_TOOL),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(SingleStepToolUseArgumentComparisonResourcesServer, **case.settings), case)


@pytest.mark.parametrize("expected", [act("f", "{"), act("f", ""), batch(OSLO, act("f", "{'a': 1}"))])
async def test_a_row_whose_call_can_not_be_read_says_nothing_about_the_model(expected: dict[str, Any]) -> None:
    """Spec 51, Do better."""
    server = new_server(SingleStepToolUseArgumentComparisonResourcesServer, **settings())
    for output in ([OSLO_CALL], ["x"], []):
        answer = await verified(server, asked(expected, *output))
        assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
        assert "expected_action calls 'f' with no JSON" in answer.failure_reason and answer.category is None


async def test_right_arguments_that_are_changed_never_score() -> None:
    """B83"""
    server = new_server(SingleStepToolUseArgumentComparisonResourcesServer, **settings(**STRICT))
    right: dict[str, Any] = {"a": 1, "b": [0.5, "x"], "c": {"d": None, "e": False}}
    others: dict[str, list[Any]] = {
        "a": [0, 2, True, "1", None, [1]],
        "b": [[0.5], ["x", 0.5], [0.6, "x"], [0.5, "y"], {"0": 0.5, "1": "x"}],
        "c": [{"d": None}, {"d": 0, "e": False}, {"d": None, "e": 0}, []],
    }
    changes: list[Any] = [{**right, name: value} for name, values in others.items() for value in values]
    changes += [{"a": 1, "b": [0.5, "x"]}, {**right, "f": 1}, [right], {}]
    assert (await verified(server, asked(act("f", right), call("f", right)))).reward == 1.0
    for changed in changes:
        assert (await verified(server, asked(act("f", right), call("f", changed)))).reward == 0.0, changed


def test_over_http() -> None:
    server = new_server(SingleStepToolUseArgumentComparisonResourcesServer, **settings())
    with TestClient(server.setup_webserver()) as client:
        answer = client.post("/verify", json=asked(OSLO, OSLO_CALL))
        assert answer.status_code == 200
        record = orjson.loads(answer.content)
        wrong: list[Any] = [None, {}, {"type": "song"}, {"type": "message"}, {**OSLO, "arguments": {}}, batch()]
        assert [client.post("/verify", json=asked(each, "x")).status_code for each in wrong] == [422] * len(wrong)
        assert client.get("/reverify_mode").json() == "stateless"
    assert (record["reward"], record["expected_action"]) == (1.0, OSLO)
    assert record["category"] == "The expected tool was called with the expected arguments"


def test_an_expected_action_may_have_the_empty_fields_that_data_sets_fill_in() -> None:
    actions: TypeAdapter[ExpectedAction] = TypeAdapter(ExpectedAction)
    assert actions.validate_python({**OSLO, "content": None, "calls": None}) == FunctionCallAction(
        name="forecast", arguments='{"city": "Oslo"}'
    )
    assert actions.validate_python({**SAY, "name": None, "arguments": None}) == MessageAction(content="Which address?")
    found = actions.validate_python({**BOTH, "name": None})
    assert isinstance(found, FunctionCallBatchAction) and len(found.calls) == 2


def test_the_names_of_the_contract() -> None:
    assert {mode.name: mode.value for mode in ParallelToolCallRewardMode} == {
        "BINARY_STRICT": "binary_strict",
        "FRACTIONAL": "fractional",
        "F1": "f1",
    }
    assert len({category.value for category in StepRewardCategory}) == len(StepRewardCategory) == 13
    comparator = ToolCallComparatorConfig(word_count_similarity_threshold=0.1)
    assert comparator.floating_point_comparison_threshold == 1e-6
    assert comparator.parallel_tool_call_reward_mode is ParallelToolCallRewardMode.BINARY_STRICT
    shell = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n"}
    for comparator_config in (
        None,
        {},
        {"word_count_similarity_threshold": 0.1, "parallel_tool_call_reward_mode": "x"},
    ):
        with pytest.raises(ValidationError):
            SingleStepToolUseArgumentComparisonResourcesServerConfig.model_validate(
                {**shell, "tool_call_comparator_config": comparator_config}
            )


SETS = [("", {}, [1.0, 1.0, 0.0, 0.0, 1.0]), ("parallel_tool_calls_", PARALLEL, [1.0, 0.0, 1.0, 0.0, 1.0])]


@pytest.mark.parametrize("prefix", ["", "parallel_tool_calls_"])
def test_example_rows(prefix: str) -> None:
    for row in check_example_rows(FOLDER, prefix=prefix):
        tools = {tool["name"] for tool in row["responses_create_params"]["tools"]}
        expected = row["expected_action"]
        wanted = expected.get("calls") or ([expected] if expected["type"] == "function_call" else [])
        assert {each["name"] for each in wanted} <= tools


@pytest.mark.parametrize(("prefix", "comparator", "rewards"), SETS)
async def test_example_rollouts_are_still_judged_as_they_were(
    prefix: str, comparator: dict[str, Any], rewards: list[float]
) -> None:
    server = new_server(SingleStepToolUseArgumentComparisonResourcesServer, **settings(**comparator))
    await check_example_rollouts(server, FOLDER, own=["category"], prefix=prefix, rewards=rewards)
    for record in rows_of(FOLDER / "data" / f"{prefix}example_rollouts.jsonl"):
        assert "function_call_output" not in [item["type"] for item in record["response"]["output"]]
