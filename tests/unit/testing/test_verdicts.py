"""The support for tests of verifiers notices what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.testing.judges import ScriptedJudge
from nemo_gym.testing.responses import call, call_output, message, reasoning, response, verify_request
from nemo_gym.testing.verdicts import Case, check_case, check_example_rollouts, check_example_rows, new_server, verified
from nemo_gym.verifiers.verdicts import unmeasured, verdict


class Config(BaseResourcesServerConfig):
    worth: float = 1.0


class Request(BaseRunRequest):
    expected: str


class VerifyRequest(Request, BaseVerifyRequest):
    pass


class Response(BaseVerifyResponse):
    found: str


class Server(SimpleResourcesServer):
    config: Config
    shareable: ClassVar[bool] = True

    def verify(self, body: VerifyRequest) -> Response:  # type: ignore[override]
        found = body.response.output_text
        own = unmeasured("lost") if found == "lost" else {"reward": self.config.worth * (found == body.expected)}
        return verdict(Response, body, own, found=found)


ROW = {"expected": "a"}


@pytest.mark.parametrize(
    "case",
    [
        Case("right", verify_request(ROW, "a"), 1.0, {"found": "a"}),
        Case("of more worth", verify_request(ROW, "a"), 2.0, settings={"worth": 2}),
        Case("masked", verify_request(ROW, "lost"), 0.0, {"mask_sample": True}),
    ],
    ids=str,
)
async def test_a_case_that_holds(case: Case) -> None:
    await check_case(new_server(Server, **case.settings), case)


@pytest.mark.parametrize(
    "case",
    [
        Case("another reward", verify_request(ROW, "a"), 0.0),
        Case("another field", verify_request(ROW, "a"), 1.0, {"found": "b"}),
        Case("masked without a word", verify_request(ROW, "lost"), 0.0),
    ],
    ids=str,
)
async def test_a_case_that_does_not(case: Case) -> None:
    with pytest.raises(AssertionError, match=case.name):
        await check_case(new_server(Server), case)


def component(folder: Path, rows: list[Any], records: list[Any] | None = None) -> Path:
    (folder / "data").mkdir()
    (folder / "task_data.py").write_text(
        "from pydantic import BaseModel\nclass TaskData(BaseModel):\n    expected: str"
    )
    for name, content in (("example", rows), ("example_rollouts", records or [])):
        (folder / "data" / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in content))
    return folder


def test_example_rows(tmp_path: Path) -> None:
    rows = [{"expected": "a"}, {"verifier_metadata": {"expected": "b"}}]
    assert check_example_rows(component(tmp_path, rows), count=2) == rows
    with pytest.raises(AssertionError):
        check_example_rows(tmp_path)


@pytest.mark.parametrize(
    "rows", [[ROW, ROW], [ROW, {"expected": 1}], [ROW, {}], [ROW, ROW | {"task_data": {"expected": "b"}}]]
)
def test_bad_example_rows(rows: list[Any], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_example_rows(component(tmp_path, rows), count=2)


def record(index: int, text: str, reward: float) -> dict[str, Any]:
    return {"_ng_task_index": index, "reward": reward, "found": text, "response": response(text)}


@pytest.mark.parametrize(
    ("records", "options", "holds"),
    [
        ([record(0, "a", 1.0), record(1, "a", 0.0)], {"own": ["found"]}, True),
        ([record(0, "a", 1.0), record(1, "a", 0.0)], {"rewards": [1.0, 0.0]}, True),
        ([record(0, "a", 1.0), record(1, "a", 0.0)], {"rewards": [0.0, 1.0]}, False),
        ([record(0, "a", 1.0), record(1, "b", 0.0)], {}, False),
        ([record(0, "a", 1.0), record(1, "b", 1.0)], {}, False),
        ([record(0, "a", 1.0)], {}, False),
        ([record(0, "a", 1.0), record(1, "a", 0.0) | {"found": "?"}], {"own": ["found"]}, False),
    ],
)
async def test_example_rollouts(records: list[Any], options: dict[str, Any], holds: bool, tmp_path: Path) -> None:
    row = {"responses_create_params": {"input": "?"}}
    folder = component(tmp_path, [row | {"expected": "a"}, row | {"expected": "b"}], records)
    if holds:
        await check_example_rollouts(new_server(Server), folder, **options)
        return
    with pytest.raises(AssertionError):
        await check_example_rollouts(new_server(Server), folder, **options)


async def test_items_are_what_a_request_may_have() -> None:
    items = (message("a", "b"), reasoning("c"), call("f", {"x": 1}), call("g", "{no"), call_output({"y": 2}))
    answer = await verified(new_server(Server), verify_request(ROW, *items, question="Why?"))
    assert [item.type for item in answer.response.output] == [item["type"] for item in items]
    assert (answer.found, answer.responses_create_params.input[0].content) == ("ab", "Why?")
    assert [item.arguments for item in answer.response.output[2:4]] == ['{"x": 1}', "{no"]


async def test_a_scripted_judge_has_no_more_answers_than_it_was_given() -> None:
    judge = ScriptedJudge("a", lambda prompt: prompt.upper())
    said = [await judge.post(server_name="j", url_path="/v1/responses", json={"input": text}) for text in "xyz"]
    texts = [(await each.json())["output"][0]["content"][0]["text"] for each in said]
    assert (texts, judge.prompts) == (["a", "Y", "Z"], ["x", "y", "z"])
    empty = ScriptedJudge()
    with pytest.raises(AssertionError, match="once more"):
        await empty.post(server_name="j", url_path="/v1/responses", json={"input": "x"})
