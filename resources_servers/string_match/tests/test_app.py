from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing.responses import message, reasoning, verify_request
from nemo_gym.testing.verdicts import Case, check_case, check_example_rollouts, check_example_rows, new_server
from resources_servers.string_match.app import (
    ExtractionMode,
    StringMatchResourcesServer,
    _answers_match,
    _extract_answer,
    _grade_string_match,
)
from resources_servers.string_match.comparison import Strictness, without_latex

FOLDER = Path(__file__).parents[1]
BOXED: ExtractionMode = "boxed"
FINAL: ExtractionMode = "final_answer"


def request(text: str | Any, expected: str = "Paris", **row: Any) -> dict[str, Any]:
    items = [text] if isinstance(text, str | dict) else text
    return verify_request({"expected_answer": expected, **row}, *items)


CASES = [
    Case("right", request("Answer: Paris"), 1.0, own={"expected_answer": "Paris", "extracted_answer": "Paris"}),
    Case("wrong", request("Answer: Rome"), 0.0, own={"extracted_answer": "Rome"}),
    Case("nothing", request([]), 0.0, own={"extracted_answer": None}),
    Case("no answer", request("Paris, I guess"), 0.0, own={"extracted_answer": None}),
    Case("the last one counts", request("Answer: Paris\nAnswer: Rome"), 0.0, own={"extracted_answer": "Rome"}),
    Case("all messages are read", request([r"\boxed{Paris}", reasoning("Answer: Rome"), "So."]), 1.0),
    Case("parts are lines", request([message("Final answer:", "Paris")]), 0.0, own={"extracted_answer": None}),
    Case(
        "of the user nothing is read", request([{"type": "message", "role": "user", "content": "Answer: Paris"}]), 0.0
    ),
    Case("an empty row", request("Answer: Paris", expected=" "), 0.0),
    Case("a box", request(r"\boxed{\text{ Paris }}", extraction_mode=BOXED), 1.0, own={"extracted_answer": "Paris"}),
    Case("a box asked for", request("Answer: Paris", extraction_mode=BOXED), 0.0, own={"extracted_answer": None}),
    Case("last line", request("Rome?\nNo.\nparis \n", extraction_mode="last_line"), 1.0),
    Case("whole response", request(" PARIS.\n", extraction_mode="full_response"), 1.0),
    Case("more than the answer", request("It is Paris", extraction_mode="full_response"), 0.0),
    Case("case", request("Answer: paris", case_sensitive=True), 0.0),
    Case("case as it must be", request("Answer:  Paris ", case_sensitive=True), 1.0),
    Case("case, nothing else is changed", request('Answer: "Paris"', case_sensitive=True), 0.0),
    Case("bold", request("**Final Answer:** **Paris**", case_sensitive=True), 1.0),
    Case("near", request("Answer: 199", expected="200"), 0.98),
    Case("near is wrong", request("Answer: 199", expected="200"), 0.0, settings={"exact_numbers": True}),
    Case("shrunk", request("Answer: salt, oil", expected="salt and oil"), 0.0),
    Case("words", request("Answer: salt, oil", "salt and oil"), 1.0, settings={"whole_list_words": True}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(StringMatchResourcesServer, **case.settings), case)


EXTRACTED: list[tuple[ExtractionMode, str, str | None]] = [
    (BOXED, r"\boxed{1} \boxed{2}", "2"),
    (BOXED, r"\boxed{1} \boxed{2", "1"),
    (BOXED, r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (BOXED, r"\boxed{\text{\text{x}}}", "x"),
    (BOXED, r"\boxed{\text{x} y}", r"\text{x} y"),
    (BOXED, r"\boxed{ }", None),
    (BOXED, r"\boxed{", None),
    (FINAL, "final answer: 4.", "4"),
    (FINAL, "FINAL  ANSWER：4", "4"),
    (FINAL, "The answer : 4 or 5", "4 or 5"),
    (FINAL, "Answer: 3.14.", "3.14"),
    (FINAL, "Answer: 1\nthe Answer: 2", "2"),
    (FINAL, r"\boxed{3}", "3"),
    (FINAL, "Answer:\n\\boxed{3}", "3"),
    (FINAL, "**Answer:**\n\\boxed{3}", "3"),
    (FINAL, r"Answer: 2, so \boxed{3}", r"2, so \boxed{3}"),
    (FINAL, "the answers are: 3", None),
    ("last_line", "a\n b \n\n", "b"),
    ("last_line", " \n", None),
    ("full_response", " a\nb ", "a\nb"),
    ("full_response", " \n", None),
]


@pytest.mark.parametrize(("mode", "text", "answer"), EXTRACTED)
def test_what_is_compared(mode: ExtractionMode, text: str, answer: str | None) -> None:
    assert _extract_answer(text, mode) == answer


SAME = [
    ("Paris", "paris"),
    ("“", "“"),
    ('"Paris"', "Paris"),
    ("'Paris.'", "Paris!"),
    ('"Paris".', "Paris"),
    ("\uff30aris", "Paris"),
    ("H₂O", "H2O"),
    ("Ca²⁺", "Ca2+"),
    ("10²", "10^2"),
    ("4.0", "4"),
    ("1e3", "1000"),
    ("$5", "5.0"),
    (r"\$5", "5"),
    (r"$7\%$", "7.0"),
    ("1,000", "1000"),
    ("1,234,567 people", "1234567 people"),
    ("1,23,456", "123456"),
    (r"5\%", "5%"),
    (r"\text{Paris}", "Paris"),
    (r"\boxed{\mathbf{Paris}}", "Paris"),
    (r"\( x + 1 \)", "x + 1"),
    (r"\[x   + 1\]", "x + 1"),
    ("$x$", "x"),
    (r"\text{a \{b\}}", r"a \{b\}"),
    ("red, green; blue", "red green blue"),
    ("red, green, blue, yellow, violet and white", "red, green, blue, yellow, violet, white"),
    ("New York", "NY"),
    ("Austin, Texas", "austin, tx"),
    ("West Virginia", "WV"),
    ("Arkansas", "AR"),
    ("x²", "x^2"),
    ("√2", r"\sqrt2"),
    ("2π", r"2\pi"),
    ("about 5 cm", "about 5"),
    (r"5\,\text{kg}", "5"),
    (r"5~\mathrm{cm}", "5 cm"),
    ("**Paris**", "Paris"),
    ("** Paris", "Paris"),
    ("Paris**", "Paris"),
    ("**kwargs", "**kwargs"),
    ("inf", "Infinity"),
]


@pytest.mark.parametrize(("answer", "expected"), SAME)
def test_the_same_answer(answer: str, expected: str) -> None:
    assert _answers_match(answer, expected) == 1.0


NEAR = [
    ("100", "100.9"),
    ("-3.14", "-3.1416"),
    ("£5", "5"),
    ("5%", "5"),
    ("1,000 km", "1000"),
    ("90°", "90"),
    ("90 degrees", "90"),
    (r"90^\circ", "90 degree"),
    (r"90^{\circ}", "90°"),
    ("5 m²", "5 m^2"),
    ("5 m^{2}", "5m2"),
    ("0", "1e-15"),
]


@pytest.mark.parametrize(("answer", "expected"), NEAR)
def test_a_number_that_is_near_or_in_another_form(answer: str, expected: str) -> None:
    assert _answers_match(answer, expected) == 0.98
    assert _answers_match(answer, "7") == 0.0


DIFFERENT = [
    ("Rome", "Paris"),
    ("", "Paris"),
    ("Paris", ""),
    ("Paris", " "),
    ("not Paris", "Paris"),
    ("102", "100"),
    ("-5", "5"),
    ("1", "0"),
    ("nan", "5"),
    ("5", "nan"),
    ("five", "5"),
    ("a, b", "b, a"),
    (r"\text{Paris", "Paris"),
    (r"\sqrt{2}", "2"),
    ("Washington", "WV"),
    ("x2y", "x^2y"),
]

WRONG_ONCE = [
    ("10²", "102"),
    ("5 km", "5 cm"),
    ("5 m2", "5 m3"),
    (r"5\text{ km}", r"5\text{ cm}"),
    ("$5", "£5"),
    ("$5", r"5\%"),
    ("12", "1,2"),
    ("1,5", "15"),
    (";", ","),
    ("$", r"\text{}"),
    ("9" * 400, "8" * 400),
    ("1e999", "inf"),
]


@pytest.mark.parametrize(("answer", "expected"), DIFFERENT)
def test_another_answer(answer: str, expected: str) -> None:
    assert _answers_match(answer, expected) == 0.0


@pytest.mark.parametrize(("answer", "expected"), WRONG_ONCE)
def test_another_answer_that_was_once_taken_for_the_same(answer: str, expected: str) -> None:
    """B83: each of these got 1.0 or 0.98 by NeMo Gym 0.7's rules."""
    assert _answers_match(answer, expected) == 0.0
    assert _answers_match(expected, answer) == 0.0
    assert _answers_match(answer, answer) == 1.0


STRICT = Strictness(exact_numbers=True, whole_list_words=True)
STRICTER = [
    ("199", "200", 0.98, 0.0),
    ("1990", "1994", 0.98, 0.0),
    ("200 km", "200", 0.98, 0.98),
    ("0.1 kg", "0.10000000000000001", 0.98, 0.98),
    ("red and blue", "red, blue", 0.0, 1.0),
    ("the long red sandstone wall", "the long red s stone wall", 1.0, 0.0),
    ("Texas or Ohio", "TX, OH", 0.0, 1.0),
    ("Oregon, Texas", "Texas", 0.0, 0.0),
    ("or", "and", 0.0, 0.0),
]


@pytest.mark.parametrize(("answer", "expected", "lax", "strict"), STRICTER)
def test_settings_that_are_stricter(answer: str, expected: str, lax: float, strict: float) -> None:
    assert _grade_string_match(answer, expected) == lax
    assert _grade_string_match(answer, expected, STRICT) == strict


@pytest.mark.parametrize("expected", ["Paris", "1,234.5 km", r"\frac{1}{2}", "red, green and blue", "New York", "90°"])
def test_a_changed_answer_never_scores(expected: str) -> None:
    """B83"""
    assert _answers_match(expected, expected) == 1.0
    for place in range(len(expected)):
        changed = expected[:place] + "7z"[expected[place] == "7"] + expected[place:]
        assert _answers_match(changed, expected, strictness=STRICT) == 0.0, changed


HOSTILE = [
    "x" * 1_000_000,
    r"\boxed{" * 200_000 + "}" * 100_000,
    r"\boxed{" + r"\text{" * 100_000 + "}" * 100_001,
    "Answer: " * 200_000,
    "Answer: " + "1," * 200_000,
    "Answer: " + "9" * 1_000_000,
    "Answer: a" + "\u0301\u0316" * 500_000,
    "Answer: " + "\x00\u202e\ud800",
    "**" * 500_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:9].encode("unicode_escape").decode() for text in HOSTILE])
@pytest.mark.parametrize("mode", ["boxed", "final_answer", "last_line", "full_response"])
def test_hostile_texts_are_wrong_answers(text: str, mode: ExtractionMode) -> None:
    """A comparison that takes more than the text's length would need hours for these."""
    assert _answers_match(_extract_answer(text, mode), "1,234 or 5 km") == 0.0


def test_long_expected_answers_are_compared_in_linear_time() -> None:
    for expected in ("a and " * 50_000, r"\text{" * 30_000, "m " * 100_000, "1," * 100_000, "9" * 100_000):
        assert _grade_string_match(expected, expected) == 1.0
        assert _grade_string_match(expected[:-9], expected) == 0.0


def test_commands_within_commands() -> None:
    assert without_latex(r"\text{a \textbf{b} {c}} \) \frac{1}{\text{2}} }") == r"a b {c} \frac{1}{2} }"


def test_over_http() -> None:
    with TestClient(new_server(StringMatchResourcesServer).setup_webserver()) as client:
        answer = client.post("/verify", json=request("Answer: paris", metadata={"a": 1}, uuid="u"))
        assert (answer.status_code, answer.json()["reward"]) == (200, 1.0)
        assert list(answer.json())[2:] == [
            "reward",
            "mask_sample",
            "failure_kind",
            "failure_reason",
            "expected_answer",
            "extracted_answer",
        ]
        assert client.get("/reverify_mode").json() == "stateless"
        for wrong in ({"expected_answer": None}, {"extraction_mode": "telepathy"}, {"expected_answer": 5}):
            assert client.post("/verify", json=request("x") | wrong).status_code == 422


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        assert isinstance(row["responses_create_params"]["input"][0]["content"], list)


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    await check_example_rollouts(new_server(StringMatchResourcesServer), FOLDER, own=["extracted_answer"])
