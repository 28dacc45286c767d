from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.server_utils import ServerClient
from nemo_gym.verifiers.extraction import last_box, unwrapped
from resources_servers.mcqa.answers import (
    GradingMode,
    Options,
    normalised,
    read_answer,
    read_match,
)
from resources_servers.mcqa.app import MCQAResourcesServer, MCQAResourcesServerConfig, MCQAVerifyRequest
from resources_servers.mcqa.task_data import TaskData

CAPITALS = Options.of([{"A": "Berlin"}, {"B": "Madrid"}, {"C": "Paris"}, {"D": "New  York"}])
STRICT: GradingMode = "strict_single_letter_boxed"
LENIENT: GradingMode = "lenient_boxed"
COLON: GradingMode = "lenient_answer_colon"
MARKED: GradingMode = "lenient_answer_colon_md"

READINGS: list[tuple[GradingMode, str, str | None]] = [
    (STRICT, r"\boxed{C}", "C"),
    (STRICT, r"First \boxed{A}, no: \boxed{ C }.", "C"),
    (STRICT, r"\boxed{(C)}", "C"),
    (STRICT, r"\boxed{C) Paris}", "C"),
    (STRICT, r"\boxed{ C : Paris}", "C"),
    (STRICT, r"\boxed{C. Paris}", "C"),
    (STRICT, r"\boxed{C - Paris}", "C"),
    (STRICT, r"\boxed{\text{C}}", "C"),
    (STRICT, r"\boxed{\text{ \text{C} }}", "C"),
    (STRICT, r"\boxed{\text{C) Paris}}", "C"),
    (STRICT, r"\boxed{\mathbf{C}}", None),
    (STRICT, r"\boxed{c}", None),
    (STRICT, r"\boxed{Paris}", None),
    (STRICT, r"\boxed{A, C}", None),
    (STRICT, r"\boxed{AC}", None),
    (STRICT, r"\boxed{E}", None),
    (STRICT, r"\boxed{}", None),
    (STRICT, r"\boxed{C", None),
    (STRICT, r"\boxed{A} and then \boxed{C", None),
    (STRICT, "The answer is C.", None),
    (STRICT, r"E = mc^2 in \boxed{E = mc^2}. Answer: D", None),
    (LENIENT, r"\boxed{C}", "C"),
    (LENIENT, r"\boxed{Paris}", "C"),
    (LENIENT, r"\boxed{\text{it is  PARIS, of course}}", "C"),
    (LENIENT, r"\boxed{new york}", "D"),
    (LENIENT, r"\boxed{Paris or Madrid}", None),
    (LENIENT, r"\boxed{London}", None),
    (LENIENT, "Paris", None),
    (COLON, "Answer: C", "C"),
    (COLON, "answer : c", "C"),
    (COLON, "Answer: Paris", "C"),
    (COLON, r"Answer: \text{C}", "C"),
    (COLON, "Answer: new york  ", "D"),
    (COLON, "Answer: A\nAnswer: C", "A"),
    (COLON, "Answer: C.", None),
    (COLON, "Answer:\nC", None),
    (COLON, "Answer: E", None),
    (COLON, "Answer:", None),
    (COLON, "The letter is C", None),
    (MARKED, "Answer: C", "C"),
    (MARKED, "**Answer:** C", "C"),
    (MARKED, "__answer__ : __C__", "C"),
    (MARKED, "Answer:\nC", "C"),
    (MARKED, "Answer: A\nOn reflection.\nAnswer: **C) Paris**", "C"),
    (MARKED, "Answer: C\nAnswer: none of these", "C"),
    (MARKED, "Answer: the capital is C", "C"),
    (MARKED, "Answer: B then C", "B"),
    (MARKED, "Answer: not B but rather C", "C"),
    (MARKED, "Answer: c", "C"),
    (MARKED, "Answer: A or C", None),
    (MARKED, "Answer: A/C", None),
    (MARKED, "Answer: A, B and C", None),
    (MARKED, "Answer: A C", None),
    (MARKED, "Answer: A and A", "A"),
    (MARKED, "Answer: A or E", "A"),
    (MARKED, "Answer: E", None),
    (MARKED, "Answer: CD", None),
    (MARKED, "Answer: C4", None),
    (MARKED, "\uff21nswer: \uff23", "C"),
    (MARKED, "Answer: \u062c", "C"),
    (MARKED, "Answer: \u09ac", "B"),
    (MARKED, "Answer: \u09f1", "B"),
    (MARKED, r"\boxed{C}", None),
    (MARKED, "Paris", None),
]


@pytest.mark.parametrize(("mode", "text", "letter"), READINGS)
def test_what_a_text_chooses(mode: GradingMode, text: str, letter: str | None) -> None:
    assert read_answer(mode, text, CAPITALS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Antwort: C", "C"),
        ("ANTWORT: B\nantwort: C", "C"),
        ("Antwort: C\nAnswer: A", "A"),
        ("Answer: A\nAntwort: C", "C"),
        ("Antwort: keine", None),
        (r"Ich meine \boxed{C}", "C"),
        (r"Answer: A, also \boxed{C}", "A"),
    ],
)
def test_an_answer_prefix_of_another_language(text: str, letter: str | None) -> None:
    assert read_answer(MARKED, text, CAPITALS, "Antwort:") == letter


def test_a_prefix_serves_its_own_mode_only() -> None:
    assert read_answer(COLON, "Antwort: C", CAPITALS, "Antwort:") is None


@pytest.mark.parametrize(
    ("match", "letter"),
    [
        ("C", "C"),
        (" c ", "C"),
        ("Z", "Z"),
        ("paris", "C"),
        ("New York", "D"),
        ("London", None),
        ("", None),
        ("7", None),
    ],
)
def test_what_a_match_of_a_row_s_pattern_stands_for(match: str, letter: str | None) -> None:
    assert read_match(match, CAPITALS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("\u0623", "A"),
        ("\u0628", "B"),
        ("\u062c", "C"),
        ("\u062f", "D"),
        ("\u0985", "A"),
        ("\u09ac", "B"),
        ("\u09f1", "B"),
        ("\u09a1", "C"),
        ("\u09a2", "D"),
        (" \uff22 ", "B"),
        ("\u2460", "1"),
    ],
)
def test_letters_of_other_scripts(text: str, letter: str) -> None:
    assert normalised(text) == letter


def test_options_are_single_letters_with_a_text() -> None:
    options = Options.of([{"a": "one"}, {"B": None}, {"10": "ten"}, {"1": "digit"}, {"CC": "two"}, {"D": ""}])
    assert options.texts == {"A": "one", "D": ""}
    assert Options.of(None).texts == {}
    assert options.with_text("") is None
    assert options.within([""]) is None


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{a}\boxed{b}", "b"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{}", ""),
        (r"\boxed{{}", None),
        ("", None),
    ],
)
def test_the_last_box(text: str, box: str | None) -> None:
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\text{a}", "a"),
        (r"\text{a} b", r"\text{a} b"),
        (r"\text{a}\text{b}", r"\text{a}\text{b}"),
        (r"\text{{a}", r"\text{{a}"),
    ],
)
def test_wrappers_are_taken_off_where_they_span_everything(text: str, inside: str) -> None:
    assert unwrapped(text) == inside


@pytest.mark.parametrize("mode", [STRICT, LENIENT, COLON, MARKED])
def test_long_texts_take_no_longer_than_their_length(mode: GradingMode) -> None:
    """A quadratic reader would need hours for these."""
    for text in ("Answer: A" + " " * 1_000_000, r"\boxed{" * 200_000, "answer" * 200_000, "Answer: " + "A " * 300_000):
        read_answer(mode, text, CAPITALS, "Answer")


# --- the server -------------------------------------------------------------------------------------------------------


def server(grading_mode: GradingMode | None = None) -> MCQAResourcesServer:
    config = MCQAResourcesServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="mcqa", grading_mode=grading_mode
    )
    return MCQAResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def message(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": parts}


def request(*output: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    items = [message(item) if isinstance(item, str) else item for item in output]
    response = {
        "id": "r",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "?"}]},
        "options": [{letter: text} for letter, text in CAPITALS.texts.items()],
        "expected_answer": "C",
    }
    return row | fields | {"response": response}


async def verdict(*output: dict[str, Any] | str, mode: GradingMode | None = None, **fields: Any) -> tuple[float, Any]:
    verified = await server(mode).verify(MCQAVerifyRequest.model_validate(request(*output, **fields)))
    return verified.reward, verified.extracted_answer


async def test_right_wrong_and_unanswered() -> None:
    assert await verdict(r"\boxed{C}") == (1.0, "C")
    assert await verdict(r"\boxed{A}") == (0.0, "A")
    assert await verdict("no idea") == (0.0, None)


@pytest.mark.parametrize("output", [(), ("",), ("  \n",), ({"id": "x", "type": "reasoning", "summary": []},)])
async def test_a_response_without_text_has_no_answer(output: tuple[Any, ...]) -> None:
    assert await verdict(*output, template_metadata={"output_regex": "(.*)"}) == (0.0, None)


async def test_text_of_all_messages_counts_but_no_reasoning() -> None:
    reasoning = {"id": "x", "type": "reasoning", "summary": [{"type": "summary_text", "text": r"\boxed{C}"}]}
    assert await verdict(reasoning, "Hm") == (0.0, None)
    assert await verdict("\\box", message("ed{", "C}")) == (1.0, "C")


@pytest.mark.parametrize(("expected", "reward"), [("C", 1.0), (" c ", 1.0), ("", 0.0), (None, 0.0), ("B", 0.0)])
async def test_the_expected_answer_is_trimmed_and_upper_cased(expected: str | None, reward: float) -> None:
    assert (await verdict(r"\boxed{C}", expected_answer=expected))[0] == reward


async def test_the_row_chooses_the_mode_and_the_server_may_choose_another() -> None:
    assert await verdict("Answer: C") == (0.0, None)
    assert await verdict("Answer: C", grading_mode=COLON) == (1.0, "C")
    assert await verdict("**Answer**: C", mode=MARKED) == (1.0, "C")
    assert await verdict("Answer: C", mode=STRICT, grading_mode=COLON) == (0.0, None)


TEMPLATES: list[tuple[Any, str, tuple[float, str | None]]] = [
    (r"Final: (\w)", "Final: A\nfinal: C", (1.0, "C")),
    (r"Final: (\w)", "Final: Z", (0.0, "Z")),
    (r"Final: (\w+)", "Final: paris", (1.0, "C")),
    (r"Final: \w", r"Final: C \boxed{C}", (1.0, "C")),
    ([r"Final: (\w)", r"Last: (\w)"], "Last: C", (1.0, "C")),
    ([r"Final: (\w)", r"Last: (\w)"], "Last: A Final: C", (1.0, "C")),
    ([r"(unclosed", r"Last: (\w)"], "Last: C", (1.0, "C")),
    (r"(unclosed", r"\boxed{C}", (1.0, "C")),
    (r"Final: (\w+)", r"Final: London \boxed{C}", (1.0, "C")),
    (r"nothing", r"\boxed{C}", (1.0, "C")),
    ([], r"\boxed{C}", (1.0, "C")),
    (None, r"\boxed{C}", (1.0, "C")),
    (7, r"\boxed{C}", (1.0, "C")),
    (r"(?P<n>.)$", "C", (1.0, "C")),
    ("\u0130x|(C)$", "C", (1.0, "C")),
]


@pytest.mark.parametrize(("output_regex", "text", "expected"), TEMPLATES)
async def test_a_row_s_own_patterns_go_first(output_regex: Any, text: str, expected: tuple[float, str | None]) -> None:
    assert await verdict(text, template_metadata={"output_regex": output_regex}) == expected


async def test_a_pattern_with_several_groups_is_an_error() -> None:
    with pytest.raises(ValueError, match="has several groups"):
        await verdict("Final: C", template_metadata={"output_regex": r"(Final): (\w)"})


async def test_an_answer_prefix_reaches_the_reader() -> None:
    assert await verdict("Antwort: C", mode=MARKED, template_metadata={"answer_prefix": "Antwort:"}) == (1.0, "C")


async def test_a_pattern_without_end_is_a_masked_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    body = request("a" * 64 + "b", template_metadata={"output_regex": "(?:a+)+$"})
    verified = await server().verify(MCQAVerifyRequest.model_validate(body))
    assert (verified.reward, verified.mask_sample, verified.failure_kind) == (0.0, True, "verifier_error")
    assert "took more than" in (verified.failure_reason or "")


def test_over_http_a_record_keeps_the_verdict_and_drops_the_question() -> None:
    with TestClient(server().setup_webserver()) as client:
        answer = client.post("/verify", json=request(r"\boxed{c) } \boxed{C}", uuid="u", expected_answer=" c"))
        assert answer.status_code == 200
        assert list(answer.json()) == [
            "responses_create_params",
            "response",
            "reward",
            "mask_sample",
            "failure_kind",
            "failure_reason",
            "expected_answer",
            "extracted_answer",
        ]
        assert (answer.json()["expected_answer"], answer.json()["extracted_answer"]) == ("C", "C")
        assert client.get("/reverify_mode").json() == "stateless"
        assert client.post("/verify", json=request("x", grading_mode=MARKED)).status_code == 422
        assert client.post("/verify", json={"expected_answer": "C"}).status_code == 422


def test_metrics_and_their_headline() -> None:
    answers: list[list[str | None]] = [["C", "C", "A"], [None, "A", "A"]]
    responses = [
        {"_ng_task_index": task, "_ng_rollout_index": i, "reward": float(a == "C"), "extracted_answer": a}
        for task, own in enumerate(answers)
        for i, a in enumerate(own)
    ]
    with TestClient(server().setup_webserver()) as client:
        metrics = client.post("/aggregate_metrics", json={"verify_responses": responses}).json()
    assert list(metrics["key_metrics"]) == [
        "mean/reward",
        "pass@1[avg-of-3]/accuracy",
        "pass@1[avg-of-3]/no_answer",
        "pass@3/no_answer",
        "majority@3/accuracy",
        "pass@1/accuracy",
    ]
    assert metrics["key_metrics"]["majority@3/accuracy"] == 50.0
    assert metrics["key_metrics"]["pass@1/accuracy"] == pytest.approx(100 / 3)
    assert metrics["key_metrics"]["pass@3/no_answer"] == 50.0
    assert server().get_key_metrics({}) == {}


def test_the_config_knows_its_modes() -> None:
    with pytest.raises(ValidationError):
        MCQAResourcesServerConfig.model_validate(
            {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n", "grading_mode": "telepathy"}
        )


def test_example_rows() -> None:
    lines = (Path(__file__).parents[1] / "data" / "example.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 5
    assert len({row["uuid"] for row in rows}) == 5
    for row in rows:
        data = TaskData.model_validate({k: v for k, v in row.items() if k != "responses_create_params"})
        assert data.expected_answer in Options.of(data.options).texts


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    data = Path(__file__).parents[1] / "data"
    rows = [json.loads(line) for line in (data / "example.jsonl").read_text().splitlines()]
    records = [json.loads(line) for line in (data / "example_rollouts.jsonl").read_text().splitlines()]
    assert [record["_ng_task_index"] for record in records] == list(range(5))
    for row, record in zip(rows, records, strict=True):
        verified = await server().verify(MCQAVerifyRequest.model_validate(row | {"response": record["response"]}))
        assert (verified.reward, verified.extracted_answer) == (record["reward"], record["extracted_answer"])
