from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.responses import message, reasoning, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.gpqa_diamond import prepare
from resources_servers.gpqa_diamond.app import GPQADiamondResourcesServer
from resources_servers.gpqa_diamond.task_data import TaskData
from resources_servers.mcqa.app import MCQAVerifyRequest

FOLDER = Path(__file__).parents[1]
ROW: dict[str, Any] = {
    "options": [{"A": "iron"}, {"B": "gold"}, {"C": "lead"}, {"D": "tin"}],
    "expected_answer": "D",
}
STATED = {"statement_first": True}


def request(*output: str | dict[str, Any], **row: Any) -> dict[str, Any]:
    return verify_request({**ROW, **row}, *output)


def by_pattern(pattern: Any, *output: str, **row: Any) -> dict[str, Any]:
    return request(*output, template_metadata={"output_regex": pattern}, **row)


def read(text: str, letter: str | None, **row: Any) -> Case:
    return Case(text[:30], request(text, **row), float(letter == "D"), own={"extracted_answer": letter})


CASES = [
    read(r"\boxed{D}", "D"),
    read(r"\boxed{C}", "C"),
    read(r"\boxed{D} or \boxed{C}", "C"),
    read(r"\boxed{A or D}", "D"),
    read(r"\boxed{the answer is D) tin}", "D"),
    read(r"\boxed{d}", None),
    read(r"\boxed{DA}", None),
    read(r"\boxed{E}", None),
    read(r"\boxed{E}, no. Answer: D", None),
    read(r"\boxed{tin}. Answer: D", "D"),
    read(r"\boxed{tin \text{D}}", None),
    read(r"\boxed{5 \text{C}}. Answer: D", "D"),
    read(r"\boxed{D", None),
    read("Answer: D", "D"),
    read("**Answer**: d", "D"),
    read("__answer__ : D.", "D"),
    read("Answer:\nD", "D"),
    read("Answer: A. No: the answer: D", "D"),
    read("Answer: D4", None),
    read("Answer: tin", None),
    read("The answer is D", None),
    read("Answer: E", None),
    read("Answer: E", "E", options=None),
    read(r"\boxed{Z}", "Z", options=[]),
    Case("nothing", request(), 0.0, own={"extracted_answer": None, "expected_answer": "D"}),
    Case("nothing expected", request(r"\boxed{D}", expected_answer=None), 0.0, own={"expected_answer": ""}),
    Case("gold is tidied", request(r"\boxed{D}", expected_answer=" d "), 1.0, own={"expected_answer": "D"}),
    Case("messages are joined", request(message(r"\box", "ed{"), reasoning(r"\boxed{C}"), "D}"), 1.0),
    Case("a pattern", by_pattern(r"<(\w)>", r"<d> \boxed{C}"), 1.0),
    Case("its last match", by_pattern(r"<(\w)>", "<D> <C>"), 0.0, own={"extracted_answer": "C"}),
    Case("an option's text", by_pattern(r"<(\w+)>", "<TIN>"), 1.0),
    Case("a letter that is no option", by_pattern(r"<(\w)>", "<E> Answer: D"), 0.0, own={"extracted_answer": "E"}),
    Case("no match", by_pattern(r"<(\w)>", r"\boxed{D}"), 1.0),
    Case("no pattern", by_pattern("(", r"\boxed{D}"), 1.0),
    Case("a list is none", by_pattern([r"<(\w)>"], r"<C> \boxed{D}"), 1.0),
    Case("a pattern of nothing", by_pattern(r"x?", ""), 0.0, own={"extracted_answer": None}),
    Case("grading modes don't count", request("Answer: D", grading_mode="strict_single_letter_boxed"), 1.0),
    Case("B80 as 0.7", request(r"\boxed{A = 5}. Answer: D"), 0.0, own={"extracted_answer": "A"}),
    Case("B80 right", request(r"\boxed{A = 5}. Answer: D"), 1.0, settings=STATED),
    Case("stated", request("The answer is (D)."), 1.0, settings=STATED),
    Case("stated, no option", request("The answer is E."), 0.0, own={"extracted_answer": None}, settings=STATED),
    Case("stated, any letter", request("The answer is D.", options=None), 1.0, settings=STATED),
]


# By 0.7's rules each of these is a wrong answer, or none.
RIGHT_ALL_THE_SAME = [
    read(r"\boxed{\text{D}}", "D"),
    read(r"\boxed{ \mathbf{ (D) } }", "D"),
    read(r"Not \boxed{A} but \boxed{\text{D}}", "D"),
    read("**Answer:** D", "D"),
    read("Answer: A? No.\n**Answer: D**", "D"),
]


@pytest.mark.parametrize("case", [*CASES, *RIGHT_ALL_THE_SAME], ids=str)
async def test_rewards(case: Case) -> None:
    """B80 is among them."""
    await check_case(new_server(GPQADiamondResourcesServer, **case.settings), case)


ENDLESS = r"(?:\w+\s?)+$\n"


@pytest.mark.parametrize(("pattern", "reason"), [(ENDLESS, "took more than"), ("(a)(b)", "has several groups")])
async def test_a_pattern_that_can_t_be_used_is_a_masked_failure(
    pattern: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    answer = await verified(new_server(GPQADiamondResourcesServer), by_pattern(pattern, "a" * 64 + "b"))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert reason in answer.failure_reason


async def test_a_response_that_no_pattern_gets_through_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    answer = await verified(new_server(GPQADiamondResourcesServer), by_pattern("(?:a+)+$", "a" * 64 + "b"))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, False, None)
    assert "took more than" in answer.failure_reason


HOSTILE = [
    r"\boxed{" * 200_000,
    r"\boxed{" + "A" * 1_000_000,
    "answer" + "*" * 1_000_000 + ":",
    "answer:" * 200_000,
    "the answer is " * 100_000,
    r"\boxed{\text{" * 100_000 + " " * 500_000,
    "a\u0301\u0316" + "\u0301\u0316" * 300_000,
    "\x00\u202e\uffff",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:12].encode("unicode_escape").decode() for text in HOSTILE])
@pytest.mark.parametrize("settings", [{}, STATED], ids=["as 0.7", "stated"])
@pytest.mark.parametrize("pattern", [None, "(?s)(.*)"])
async def test_hostile_texts_are_wrong_answers(text: str, settings: dict[str, Any], pattern: str | None) -> None:
    asked = by_pattern(pattern, text) if pattern else request(text)
    assert (await verified(new_server(GPQADiamondResourcesServer, **settings), asked)).reward == 0.0


def test_over_http() -> None:
    with TestClient(new_server(GPQADiamondResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=request(r"\boxed{D}", metadata={"difficulty": "x"})).json()
        assert client.get("/reverify_mode").json() == "unknown"
        records = [record | {"_ng_task_index": 0, "_ng_rollout_index": index} for index in range(2)]
        metrics = client.post("/aggregate_metrics", json={"verify_responses": records}).json()
        assert client.post("/verify", json={"expected_answer": "D"}).status_code == 422
    assert list(record)[2:] == [
        "reward",
        "mask_sample",
        "failure_kind",
        "failure_reason",
        "expected_answer",
        "extracted_answer",
    ]
    assert metrics["key_metrics"]["majority@2/accuracy"] == 100.0


def test_the_request_is_mcqa_s() -> None:
    assert MCQAVerifyRequest.model_validate(request("x")).options == ROW["options"]
    assert TaskData.model_validate(ROW).expected_answer == "D"


# --- data -------------------------------------------------------------------------------------------------------------

PUBLISHED = {
    "Question": "Which metal is yellow?\n",
    "Correct Answer": "gold",
    "Incorrect Answer 1": "iron",
    "Incorrect Answer 2": "lead ",
    "Incorrect Answer 3": "tin",
    "Explanation": "Look.",
    "Subdomain": "Chemistry (general)",
    "Writer's Difficulty Estimate": "Easy",
}


def test_published_questions_become_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def hub_rows(repository: str, **options: str) -> Any:
        asked.append((repository, options))
        return iter([PUBLISHED, PUBLISHED | {"Question": "Which metal is heavy?"}, PUBLISHED])

    monkeypatch.setattr(prepare, "hub_rows", hub_rows)
    written = prepare.prepare(output=tmp_path / "rows.jsonl", limit=2)
    assert asked == [("Idavidrein/gpqa", {"split": "train", "config": "gpqa_diamond"})]
    first, second = rows_of(written)
    assert first == prepare.as_row(PUBLISHED)
    assert [option[first["expected_answer"]] for option in first["options"] if first["expected_answer"] in option] == [
        "gold"
    ]
    assert sorted(text for option in first["options"] for text in option.values()) == ["gold", "iron", "lead", "tin"]
    assert first["metadata"] == {
        "explanation": "Look.",
        "subset_for_metrics": "Chemistry (general)",
        "difficulty": "Easy",
    }
    prompt = first["responses_create_params"]["input"][0]["content"]
    assert all(f"{letter}) {text}" in prompt for option in first["options"] for letter, text in option.items())
    assert first["uuid"] != second["uuid"]


def test_options_stand_in_every_order() -> None:
    rows = [prepare.as_row(PUBLISHED | {"Question": f"Question {number}?"}) for number in range(40)]
    assert {row["expected_answer"] for row in rows} == set("ABCD")


def test_a_published_question_without_an_answer_is_named() -> None:
    with pytest.raises(PreparationError, match="Row 7 lacks"):
        prepare.as_row(PUBLISHED | {"Correct Answer": None}, 7)


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        assert set(row["metadata"]) == {"explanation", "subset_for_metrics", "difficulty"}


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    server = new_server(GPQADiamondResourcesServer)
    await check_example_rollouts(server, FOLDER, own=["extracted_answer"])
