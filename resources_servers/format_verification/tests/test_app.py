from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

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
from resources_servers.format_verification.app import FormatVerificationResourcesServer
from resources_servers.format_verification.task_data import TaskData

FOLDER = Path(__file__).parents[1]
CITATIONS = "ds3_citation_format_"
Item = str | dict[str, Any]


def request(verifier: Any, *output: Item) -> dict[str, Any]:
    return verify_request({"verifier": verifier}, *output)


def lines(name: str, patterns: list[str], least: int | None, text: Item | tuple[Item, ...], count: int) -> list[Case]:
    """A case for each of the two types that count lines."""
    wanted = {} if least is None else {"verify_min_matches": least}
    passed = count >= (1 if least is None else least)
    details = {"matching_lines": count, "min_matches": 1 if least is None else least, "passed": passed}
    verifiers = [
        {"type": kind, "verify_regex": patterns, "pattern_id": "p", **wanted} for kind in ("regex", "inline_prose")
    ]
    output = text if isinstance(text, tuple) else (text,)
    return [
        Case(
            f"{own['type']}: {name}", request(own, *output), float(passed), {"match_details": details, "verifier": own}
        )
        for own in verifiers
    ]


def markers(
    name: str, expected: list[str], patterns: list[str], text: str, missing: Any = (), spurious: Any = ()
) -> Case:
    passed = not missing and not spurious
    details = {"expected": expected, "missing": list(missing), "spurious": list(spurious), "passed": passed}
    verifier = {"type": "string_match", "expected_markers": expected, "patterns": patterns}
    own = {"match_details": details, "verifier": verifier}
    return Case(f"markers: {name}", request(verifier, text), float(passed), own)


CASES = [
    *lines("enough", [r"^\* "], 2, "* a\n* b", 2),
    *lines("too few", [r"^\* "], 3, "* a\n* b", 2),
    *lines("one by default", [r"^\* "], None, "* a", 1),
    *lines("none", [r"^\* "], None, "a", 0),
    *lines("none wanted, nothing said", [r"^\* "], 0, "", 0),
    *lines("nothing said", [r"^\* "], 1, "", 0),
    *lines("no message", [r"^\* "], 1, (), 0),
    *lines("no pattern", [], None, "* a", 0),
    *lines("no pattern, none wanted", [], 0, "anything", 0),
    *lines("a line counts once", ["a", "b"], 2, "ab ab", 1),
    *lines("either pattern", ["a", "b"], 2, "a\nb", 2),
    *lines("anywhere in a line", [r"\d"], 3, "x1\n\n2y\nz\n33", 3),
    *lines("empty lines", ["^$"], 2, "a\n\n", 2),
    *lines("not across lines", ["a.b"], 1, "a\nb", 0),
    *lines("case", ["A"], 1, "a", 0),
    *lines("only newlines end lines", ["x$"], 1, "x\r\ny", 0),
    *lines("all messages, no reasoning", [r"^\* "], 2, (reasoning("* x"), "* a\n*", message(" b\n", "c")), 2),
    markers("there", ["[1]"], [r"\[\d\]"], "so [1]"),
    markers("missing", ["[1]", "[2]"], [r"\[\d\]"], "so [2] [2]", missing=["[1]"]),
    markers("spurious, each time", ["[1]"], [r"\[\d\]"], "so [1] [3] [2] [3]", spurious=["[3]", "[2]", "[3]"]),
    markers("case", ["[A]"], [r"\[\w\]"], "so [a]", missing=["[A]"], spurious=["[a]"]),
    markers("no patterns", ["[1]"], [], "so [1] [9]"),
    markers("nothing wanted", [], [], "anything"),
    markers("nothing wanted, something cited", [], [r"\[\d\]"], "so [1]", spurious=["[1]"]),
    markers("groups don't matter", ["(ref 1)"], [r"\((ref) (\d)\)"], "(ref 1) (ref 2)", spurious=["(ref 2)"]),
    markers("pattern by pattern", ["[1]"], [r"\[\d\]", r"<\d>"], "<2> [1] [3]", spurious=["[3]", "<2>"]),
    Case("markers: by default none", request({"type": "string_match"}, "x"), 1.0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(FormatVerificationResourcesServer), case)


ENDLESS = r"(?:\w+\s?)+;;"
UNUSABLE: list[tuple[str, dict[str, Any], str]] = [
    ("unknown type", {"type": "telepathy"}, "'telepathy' found using 'type' does not match"),
    ("no type", {}, "Unable to extract tag using discriminator 'type'"),
    ("null type", {"type": None}, "'None' found using 'type'"),
    ("list as type", {"type": ["regex"]}, "found using 'type' does not match"),
    ("invalid pattern", {"type": "regex", "verify_regex": ["("]}, "'(' is no regular expression"),
    ("invalid second pattern", {"type": "string_match", "patterns": ["ok", "("]}, "'(' is no regular expression"),
    ("patterns as text", {"type": "regex", "verify_regex": "a"}, "verifier.regex.verify_regex: "),
    ("a number as pattern", {"type": "string_match", "patterns": [5]}, "verifier.string_match.patterns.0: "),
    ("no number", {"type": "inline_prose", "verify_min_matches": None}, "verifier.inline_prose.verify_min_matches: "),
    ("endless lines", {"type": "regex", "verify_regex": [ENDLESS]}, "took more than"),
    ("endless markers", {"type": "string_match", "patterns": [ENDLESS]}, "took more than"),
]


@pytest.mark.parametrize(("verifier", "reason"), [each[1:] for each in UNUSABLE], ids=[each[0] for each in UNUSABLE])
async def test_a_verifier_that_can_t_be_used_is_no_wrong_answer(
    verifier: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """51 "Do better": 0.7 answers 500 without a word on the row, or never."""
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    answer = await verified(new_server(FormatVerificationResourcesServer), request(verifier, "a" * 64 + "b"))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert reason in answer.failure_reason
    assert (answer.verifier, answer.match_details) == (verifier, {})


@pytest.mark.parametrize(
    "verifier", [{"type": "regex", "verify_regex": ["(?:a+)+$"]}, {"type": "string_match", "patterns": ["(?:a+)+$"]}]
)
async def test_a_text_that_no_pattern_gets_through_is_a_wrong_answer(
    verifier: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    answer = await verified(new_server(FormatVerificationResourcesServer), request(verifier, "a" * 64 + "b"))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, False, None)
    assert "took more than" in answer.failure_reason


HOSTILE = ["[9]" * 200_000, "\n" * 500_000, "* " * 500_000, "\x00\u202e\uffff", "a\u0301" * 300_000, "{" * 1_000_000]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:3].encode("unicode_escape").decode() for text in HOSTILE])
async def test_hostile_texts_are_texts_without_the_form(text: str) -> None:
    server = new_server(FormatVerificationResourcesServer)
    by_lines = {"type": "regex", "verify_regex": [r"^\* \S.*\.$", r"^Step \d+"], "verify_min_matches": 1}
    by_markers = {"type": "string_match", "expected_markers": ["[1]"], "patterns": [r"\[\d\]"]}
    for verifier in (by_lines, by_markers):
        answer = await verified(server, request(verifier, text))
        assert (answer.reward, answer.mask_sample) == (0.0, False)


def test_over_http() -> None:
    with TestClient(new_server(FormatVerificationResourcesServer).setup_webserver()) as client:
        answer = client.post("/verify", json=request({"type": "regex", "verify_regex": ["x"]}, "x"))
        assert list(answer.json())[2:] == [
            "reward",
            "mask_sample",
            "failure_kind",
            "failure_reason",
            "verifier",
            "match_details",
        ]
        assert client.get("/reverify_mode").json() == "stateless"
        for wrong in ({}, {"verifier": None}, {"verifier": "regex"}):
            assert client.post("/verify", json=verify_request(wrong, "x")).status_code == 422
        assert client.post("/verify", json=request({"type": "telepathy"}, "x")).status_code == 200


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "agent", "kinds"),
    [
        ("", "freeform_formatting_simple_agent", {"regex", "inline_prose"}),
        ("ds2_freeform_formatting_", "freeform_formatting_simple_agent", {"regex", "inline_prose"}),
        (CITATIONS, "citation_format_simple_agent", {"string_match"}),
    ],
)
def test_example_rows(prefix: str, agent: str, kinds: set[str]) -> None:
    rows = check_example_rows(FOLDER, prefix=prefix)
    assert {row["agent_ref"]["name"] for row in rows} == {agent}
    assert {row["verifier"]["type"] for row in rows} == kinds


@pytest.mark.parametrize("prefix", ["", CITATIONS])
async def test_example_rows_can_be_answered(prefix: str) -> None:
    from resources_servers.format_verification.audit import reference

    server = new_server(FormatVerificationResourcesServer)
    for row in rows_of(FOLDER / "data" / f"{prefix}example.jsonl"):
        prompt = row["responses_create_params"]["input"][0]["content"]
        for text, reward in ((reference(row), 1.0), ("I would rather not.", 0.0), (prompt, 0.0)):
            assert text is not None
            assert (await verified(server, verify_request(row, text))).reward == reward


@pytest.mark.parametrize("prefix", ["", CITATIONS])
async def test_example_rollouts_are_still_judged_as_they_were(prefix: str) -> None:
    server = new_server(FormatVerificationResourcesServer)
    await check_example_rollouts(server, FOLDER, own=["match_details"], prefix=prefix)


def test_task_data_refuses_unknown_verifiers() -> None:
    with pytest.raises(ValidationError):
        TaskData.model_validate({"verifier": {"type": "telepathy"}})
    assert (
        TaskData.model_validate({"verifier": {"type": "regex", "pattern_id": "p", "more": 1}}).verifier.type == "regex"
    )
