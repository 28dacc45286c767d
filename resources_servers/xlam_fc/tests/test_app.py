from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.responses import call, call_output, message, reasoning, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.xlam_fc import prepare
from resources_servers.xlam_fc.app import XlamFcResourcesServer
from resources_servers.xlam_fc.prepare import as_row, schema_of

FOLDER = Path(__file__).parents[1]
OSLO: dict[str, Any] = {"name": "forecast", "arguments": {"city": "Oslo", "days": 2}}
ROME: dict[str, Any] = {"name": "forecast", "arguments": {"city": "Rome", "days": 2}}
STRICT = {"strict_types": True}


def expecting(*answers: Any) -> dict[str, Any]:
    return {"expected_answers": list(answers)}


def made(*answers: dict[str, Any]) -> list[dict[str, Any]]:
    return [call(answer["name"], answer["arguments"]) for answer in answers]


def asked(expected: list[Any], *output: Any) -> dict[str, Any]:
    return verify_request(expecting(*expected), *output)


def with_days(value: Any) -> dict[str, Any]:
    return call("forecast", {"city": "Oslo", "days": value})


def counts(expected: int, predicted: int, correct: int) -> dict[str, int]:
    return {"num_expected": expected, "num_predicted": predicted, "num_correct": correct}


ANY = {"name": "forecast", "arguments": {}}
CASES = [
    Case("right", asked([OSLO], *made(OSLO)), 1.0, {**counts(1, 1, 1), "predicted_calls": [OSLO]}),
    Case("both", asked([OSLO, ROME], *made(OSLO, ROME)), 1.0, counts(2, 2, 2)),
    Case("in another order", asked([OSLO, ROME], *made(ROME, OSLO)), 1.0, counts(2, 2, 2)),
    Case("over several turns", asked([OSLO, ROME], *made(OSLO), call_output("cold"), *made(ROME)), 1.0),
    Case("with words beside it", asked([OSLO], reasoning(), "I'll look.", *made(OSLO)), 1.0),
    Case("one is missing", asked([OSLO, ROME], *made(OSLO)), 0.0, counts(2, 1, 1)),
    Case("one too many", asked([OSLO], *made(OSLO, ROME)), 0.0, counts(1, 2, 1)),
    Case("one twice", asked([OSLO], *made(OSLO, OSLO)), 0.0, counts(1, 2, 1)),
    Case("one twice for two", asked([OSLO, ROME], *made(OSLO, OSLO)), 0.0, counts(2, 2, 1)),
    Case("the same twice, wanted twice", asked([OSLO, OSLO], *made(OSLO, OSLO)), 1.0, counts(2, 2, 2)),
    Case("nothing", asked([OSLO]), 0.0, {**counts(1, 0, 0), "predicted_calls": []}),
    Case("words only", asked([OSLO], 'forecast(city="Oslo", days=2)'), 0.0, counts(1, 0, 0)),
    Case("a call as text", asked([OSLO], '{"name": "forecast", "arguments": {"city": "Oslo", "days": 2}}'), 0.0),
    Case("nothing wanted, nothing done", asked([], "No function does that."), 1.0, counts(0, 0, 0)),
    Case("nothing wanted, something done", asked([], *made(OSLO)), 0.0, counts(0, 1, 0)),
    # names and arguments
    Case("another function", asked([OSLO], call("air", OSLO["arguments"])), 0.0, counts(1, 1, 0)),
    Case("a name in other letters", asked([OSLO], call("Forecast", OSLO["arguments"])), 0.0),
    Case("another value", asked([OSLO], with_days(3)), 0.0),
    Case("a number as text", asked([OSLO], with_days("2")), 0.0),
    Case("a whole number with a point", asked([OSLO], with_days(2.0)), 1.0),
    Case("an argument is missing", asked([OSLO], call("forecast", {"city": "Oslo"})), 0.0),
    Case("an argument more", asked([OSLO], call("forecast", {**OSLO["arguments"], "unit": "C"})), 1.0),
    Case("no argument wanted", asked([ANY], *made(OSLO)), 1.0),
    Case("none named", asked([{"name": "forecast"}], *made(OSLO)), 1.0),
    Case("null named", asked([{"name": "forecast", "arguments": None}], *made(OSLO)), 1.0),
    Case("wanted as text", asked([{"name": "forecast", "arguments": '{"days": 2}'}], *made(OSLO)), 1.0),
    Case("wanted as text, another", asked([{"name": "forecast", "arguments": '{"days": 3}'}], *made(OSLO)), 0.0),
    Case("lists", asked([{"name": "f", "arguments": {"a": [1, [2]]}}], call("f", {"a": [1, [2]]})), 1.0),
    Case("lists in another order", asked([{"name": "f", "arguments": {"a": [1, 2]}}], call("f", {"a": [2, 1]})), 0.0),
    Case("null is a value", asked([{"name": "f", "arguments": {"a": None}}], call("f", {})), 0.0),
    # a wide one doesn't take what a narrow one needs, which 0.7's order may
    Case("wide and narrow", asked([ANY, OSLO], *made(OSLO, ROME)), 1.0, counts(2, 2, 2)),
    Case("wide and narrow, but wrong", asked([ANY, OSLO], *made(ROME, ROME)), 0.0, counts(2, 2, 1)),
    # what can't be read
    Case("no JSON", asked([OSLO], call("forecast", "{city: Oslo}")), 0.0,
         {**counts(1, 1, 0), "predicted_calls": [{"name": "forecast", "arguments": {}}]}),
    Case("no JSON where nothing is wanted", asked([ANY], call("forecast", "{")), 1.0),
    Case("no JSON, strictly", asked([ANY], call("forecast", "{")), 0.0, settings=STRICT),
    Case("a list", asked([OSLO], call("forecast", "[2]")), 0.0,
         {"predicted_calls": [{"name": "forecast", "arguments": [2]}]}),
    Case("a text that has the name in it", asked([OSLO], call("forecast", '"city days"')), 0.0),
    Case("a number", asked([OSLO], call("forecast", "7")), 0.0),
    Case("nothing at all", asked([OSLO], call("forecast", "")), 0.0),
    Case("infinite", asked([OSLO], call("forecast", '{"city": "Oslo", "days": 1e999}')), 0.0),
    Case("half a surrogate pair", asked([ANY], call("forecast", r'{"city": "\ud800"}')), 1.0,
         {"predicted_calls": [{"name": "forecast", "arguments": {}}]}),
    Case("very deep", asked([OSLO], call("forecast", '{"city": ' * 5000 + "1" + "}" * 5000)), 0.0),
    Case("very many", asked([OSLO], *[call("forecast", '{"city": "Oslo", "days": 2}')] * 3000), 0.0,
         counts(1, 3000, 1)),
    Case("very long", asked([OSLO], call("forecast", {"city": "O" * 1_000_000})), 0.0),
    Case("odd characters", asked([OSLO], call("forecast", {"city": "Oslo\x00\u202e", "days": 2})), 0.0),
    # true is 1 in 0.7
    Case("true for one", asked([{"name": "f", "arguments": {"a": 1}}], call("f", {"a": True})), 1.0),
    Case("true for one, strictly", asked([{"name": "f", "arguments": {"a": 1}}], call("f", {"a": True})), 0.0,
         settings=STRICT),
    Case("strictly", asked([OSLO, ROME], *made(ROME, OSLO)), 1.0, settings=STRICT),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(XlamFcResourcesServer, **case.settings), case)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"arguments": {}},
        {"name": 3, "arguments": {}},
        {"name": "f", "arguments": [1]},
        {"name": "f", "arguments": "[1]"},
        {"name": "f", "arguments": "{"},
    ],
)
async def test_a_row_without_calls_says_nothing_about_the_model(answer: dict[str, Any]) -> None:
    """Spec 51, Do better: 0.7 answers 500, and the rollout is lost without a reason."""
    verdict = await verified(new_server(XlamFcResourcesServer), asked([answer], *made(OSLO)))
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, True, "verifier_error")
    assert "expected_answers" in verdict.failure_reason


async def test_a_right_call_that_is_changed_never_scores() -> None:
    """B83"""
    server = new_server(XlamFcResourcesServer)
    for value in ("Oslo ", "oslo", ["Oslo"], {"Oslo": "Oslo"}, None, True, 0):
        changed = call("forecast", {"city": value, "days": 2})
        assert (await verified(server, asked([OSLO], changed))).reward == 0.0, value


HOSTILE = [
    '{"a": ' * 300 + "1" + "}" * 300,
    "[" * 250 + "]" * 250,
    r'{"a": "\udc00", "\ud800": 1}',
    '{"a": ' + "9" * 5000 + "}",
    '{"a": ' + "9" * 300 + "}",
    '{"a": -1e999}',
    '{"a": "\x00\x1f"}',
    '{"a": 1, "a": {"b": []}}',
]


@pytest.mark.parametrize("arguments", HOSTILE)
def test_whatever_a_model_writes_the_answer_can_be_read(arguments: str) -> None:
    """The agent reads the verdict with orjson: a number it refuses would lose the rollout."""
    with TestClient(new_server(XlamFcResourcesServer).setup_webserver()) as client:
        answer = client.post("/verify", json=asked([OSLO], call("forecast", arguments), *made(OSLO)))
        assert answer.status_code == 200
        record = orjson.loads(answer.content)
    assert (record["reward"], record["num_correct"], len(record["predicted_calls"])) == (0.0, 1, 2)


def test_over_http() -> None:
    with TestClient(new_server(XlamFcResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=asked([OSLO], message("x"), *made(OSLO))).json()
        bare = client.post("/verify", json=verify_request({}, "Nothing to do.")).json()
        assert client.post("/verify", json=verify_request({"expected_answers": "x"})).status_code == 422
        assert client.get("/reverify_mode").json() == "stateless"
    assert {name: record[name] for name in ("reward", "expected_answers", "num_expected", "predicted_calls")} == {
        "reward": 1.0,
        "expected_answers": [OSLO],
        "num_expected": 1,
        "predicted_calls": [OSLO],
    }
    assert (bare["reward"], bare["num_expected"]) == (1.0, 0)


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        tools = {tool["name"] for tool in row["responses_create_params"]["tools"]}
        assert {answer["name"] for answer in row["expected_answers"]} <= tools


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    own = ["expected_answers", "num_expected", "num_predicted", "num_correct", "predicted_calls"]
    rewards = [1.0, 1.0, 0.0, 1.0, 0.0]
    await check_example_rollouts(new_server(XlamFcResourcesServer), FOLDER, own=own, rewards=rewards)


# --- the published questions ------------------------------------------------------------------------------------------

TOOLS = (
    '[{"name": "live", "description": "Lists.", "parameters": {"kind": {"description": "Which", "type": "str", '
    '"default": "game"}, "ids": {"description": "Ids", "type": "List[int]"}, "deep": {"type": "dict, optional"}}}]'
)
PUBLISHED = {
    "id": 7,
    "query": "What is on?",
    "tools": TOOLS,
    "answers": '[{"name": "live", "arguments": {"ids": [1]}}]',
}


def test_a_published_question_becomes_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("datasets")
    module.load_dataset = lambda *args, **options: [PUBLISHED] * 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    row, other = rows_of(prepare.prepare(output=tmp_path / "train.jsonl", limit=2))
    assert row == other == as_row(PUBLISHED)
    assert row["expected_answers"] == [{"name": "live", "arguments": {"ids": [1]}}]
    assert row["responses_create_params"]["input"][-1] == {"role": "user", "content": "What is on?"}
    assert row["responses_create_params"]["tools"] == [
        {
            "type": "function",
            "name": "live",
            "description": "Lists.",
            "parameters": {
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "description": "Which", "default": "game"},
                    "ids": {"type": "array", "items": {"type": "integer"}, "description": "Ids"},
                    "deep": {"type": "object"},
                },
                "required": ["ids"],
            },
            "strict": False,
        }
    ]


@pytest.mark.parametrize(
    ("published", "schema"),
    [
        ("str", {"type": "string"}),
        ("int, optional", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("list", {"type": "array"}),
        ("List[List[float]]", {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        ("Tuple[int, int]", {"type": "array", "items": {"type": "integer"}}),
        ("Dict[str, Any]", {"type": "object"}),
        ("Optional[str]", {"type": "string"}),
        ("Union[int, float]", {"type": "integer"}),
        ("Callable[[float], float]", {}),
        ("", {}),
    ],
)
def test_types_of_the_data_set(published: str, schema: dict[str, Any]) -> None:
    assert schema_of(published) == schema


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"query": ""}, "Row 4 has no query"),
        ({"tools": "["}, "Row 4 has no tools"),
        ({"tools": '[{"a": 1}]'}, "Row 4 has no tools"),
        ({"answers": None}, "Row 4 has no answers"),
    ],
)
def test_published_questions_that_can_not_be_used(change: dict[str, Any], told: str) -> None:
    with pytest.raises(PreparationError, match=told):
        as_row({**PUBLISHED, **change}, 4)
