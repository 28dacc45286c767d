from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.testing.responses import message, reasoning, verify_request
from nemo_gym.testing.verdicts import Case, check_case, check_example_rollouts, check_example_rows, new_server, verified
from resources_servers.mcqa.answers import (
    GradingMode,
    Options,
    normalised,
    read_answer,
    read_match,
)
from resources_servers.mcqa.app import MCQAResourcesServer, MCQAResourcesServerConfig

FOLDER = Path(__file__).parents[1]
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


@pytest.mark.parametrize("mode", [STRICT, LENIENT, COLON, MARKED])
def test_long_texts_take_no_longer_than_their_length(mode: GradingMode) -> None:
    """A quadratic reader would need hours for these."""
    marks = "\u0301\u0316" * 500_000
    for text in ("Answer: A" + " " * 1_000_000, r"\boxed{" * 200_000, "answer" * 200_000, "Answer: " + "A " * 300_000):
        read_answer(mode, text, CAPITALS, "Answer")
    for text in (f"Answer: A{marks}", rf"\boxed{{a{marks}}}"):
        assert read_answer(mode, text, CAPITALS, "Answer") is None


# --- the server -------------------------------------------------------------------------------------------------------


ROW: dict[str, Any] = {
    "options": [{letter: text} for letter, text in CAPITALS.texts.items()],
    "expected_answer": "C",
}


def request(*output: Any, **fields: Any) -> dict[str, Any]:
    return verify_request({**ROW, **fields}, *output)


def case(name: str, asked: dict[str, Any], reward: float, letter: str | None, mode: GradingMode | None = None) -> Case:
    return Case(name, asked, reward, {"extracted_answer": letter}, {"grading_mode": mode})


def by_pattern(output_regex: Any, text: str) -> dict[str, Any]:
    return request(text, template_metadata={"output_regex": output_regex})


SUMMARY = reasoning(r"\boxed{C}")
CASES = [
    case("right", request(r"\boxed{C}"), 1.0, "C"),
    case("wrong", request(r"\boxed{A}"), 0.0, "A"),
    case("unanswered", request("no idea"), 0.0, None),
    # the text
    case("no output", by_pattern("(.*)", "") | {"response": request()["response"]}, 0.0, None),
    case("an empty text", by_pattern("(.*)", ""), 0.0, None),
    case("a blank text", by_pattern("(.*)", "  \n"), 0.0, None),
    case("reasoning alone", request(SUMMARY, template_metadata={"output_regex": "(.*)"}), 0.0, None),
    case("reasoning is no text", request(SUMMARY, "Hm"), 0.0, None),
    case("all messages are one text", request("\\box", message("ed{", "C}")), 1.0, "C"),
    # what is expected
    case("expected with spaces, in lower case", request(r"\boxed{C}", expected_answer=" c "), 1.0, "C"),
    case("expected empty", request(r"\boxed{C}", expected_answer=""), 0.0, "C"),
    case("expected null", request(r"\boxed{C}", expected_answer=None), 0.0, "C"),
    case("another expected", request(r"\boxed{C}", expected_answer="B"), 0.0, "C"),
    # the mode
    case("strict by default", request("Answer: C"), 0.0, None),
    case("the row's mode", request("Answer: C", grading_mode=COLON), 1.0, "C"),
    case("the server's mode", request("**Answer**: C"), 1.0, "C", MARKED),
    case("the server's goes before the row's", request("Answer: C", grading_mode=COLON), 0.0, None, STRICT),
    case("a prefix of the row", request("Antwort: C", template_metadata={"answer_prefix": "Antwort:"}), 1.0, "C",
         MARKED),
    # the row's own patterns
    case("the last match", by_pattern(r"Final: (\w)", "Final: A\nfinal: C"), 1.0, "C"),
    case("a letter that is no option", by_pattern(r"Final: (\w)", "Final: Z"), 0.0, "Z"),
    case("the text of an option", by_pattern(r"Final: (\w+)", "Final: paris"), 1.0, "C"),
    case("a match that is no answer", by_pattern(r"Final: \w", r"Final: C \boxed{C}"), 1.0, "C"),
    case("the second pattern", by_pattern([r"Final: (\w)", r"Last: (\w)"], "Last: C"), 1.0, "C"),
    case("the first pattern first", by_pattern([r"Final: (\w)", r"Last: (\w)"], "Last: A Final: C"), 1.0, "C"),
    case("no pattern, and a second", by_pattern([r"(unclosed", r"Last: (\w)"], "Last: C"), 1.0, "C"),
    case("no pattern, then the mode", by_pattern(r"(unclosed", r"\boxed{C}"), 1.0, "C"),
    case("no option of that text, then the mode", by_pattern(r"Final: (\w+)", r"Final: London \boxed{C}"), 1.0, "C"),
    case("no match, then the mode", by_pattern(r"nothing", r"\boxed{C}"), 1.0, "C"),
    case("an empty list", by_pattern([], r"\boxed{C}"), 1.0, "C"),
    case("null", by_pattern(None, r"\boxed{C}"), 1.0, "C"),
    case("a number", by_pattern(7, r"\boxed{C}"), 1.0, "C"),
    case("a named group", by_pattern(r"(?P<n>.)$", "C"), 1.0, "C"),
    case("a letter that grows in lower case", by_pattern("\u0130x|(C)$", "C"), 1.0, "C"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(MCQAResourcesServer, **case.settings), case)


async def test_a_pattern_with_several_groups_is_the_row_s_fault() -> None:
    answer = await verified(new_server(MCQAResourcesServer), by_pattern(r"(Final): (\w)", "Final: C"))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert "has several groups" in answer.failure_reason


@pytest.mark.parametrize(("pattern", "masks"), [("(?:a+)+$", False), (r"(?:\w+\s?)+$\n", True)])
async def test_a_pattern_without_end(pattern: str, masks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It masks the rollout if it takes for ever on any text, else it is the response's doing."""
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    answer = await verified(new_server(MCQAResourcesServer), by_pattern(pattern, "a" * 64 + "!"))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, masks, "verifier_error" if masks else None)
    assert "took more than" in answer.failure_reason


def test_over_http_a_record_keeps_the_verdict_and_drops_the_question() -> None:
    with TestClient(new_server(MCQAResourcesServer).setup_webserver()) as client:
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
    with TestClient(new_server(MCQAResourcesServer).setup_webserver()) as client:
        metrics = client.post("/aggregate_metrics", json={"verify_responses": responses}).json()
    assert list(metrics["key_metrics"]) == [
        "mean/reward",
        "pass@1/accuracy",
        "pass@1[avg-of-3]/accuracy",
        "pass@1[avg-of-3]/no_answer",
        "pass@3/no_answer",
        "majority@3/accuracy",
    ]
    assert metrics["key_metrics"]["majority@3/accuracy"] == 50.0
    assert metrics["key_metrics"]["pass@1/accuracy"] == pytest.approx(100 / 3)
    assert metrics["key_metrics"]["pass@3/no_answer"] == 50.0
    assert new_server(MCQAResourcesServer).get_key_metrics({}) == {}


def test_the_config_knows_its_modes() -> None:
    with pytest.raises(ValidationError):
        MCQAResourcesServerConfig.model_validate(
            {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n", "grading_mode": "telepathy"}
        )


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        assert row["expected_answer"] in Options.of(row["options"]).texts


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    await check_example_rollouts(new_server(MCQAResourcesServer), FOLDER, own=["extracted_answer"])
