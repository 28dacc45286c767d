from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.server_utils import ServerClient
from resources_servers.format_verification.app import (
    FormatVerificationResourcesServer,
    FormatVerificationResourcesServerConfig,
    FormatVerificationVerifyRequest,
)
from resources_servers.format_verification.task_data import TaskData

DATA = Path(__file__).parents[1] / "data"
Details = dict[str, Any]


def server() -> FormatVerificationResourcesServer:
    config = FormatVerificationResourcesServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="freeform_formatting"
    )
    return FormatVerificationResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def message(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": parts}


def request(verifier: dict[str, Any], *output: dict[str, Any] | str) -> dict[str, Any]:
    response = {
        "id": "r",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [message(item) if isinstance(item, str) else item for item in output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "?"}]},
        "verifier": verifier,
        "response": response,
    }


async def verified(verifier: dict[str, Any], *output: dict[str, Any] | str) -> tuple[float, Details]:
    body = FormatVerificationVerifyRequest.model_validate(request(verifier, *output))
    answer = await server().verify(body)
    assert answer.verifier == verifier
    return answer.reward, answer.match_details


LINES: list[tuple[list[str], int | None, str, int, bool]] = [
    ([r"^\* "], 2, "* a\n* b", 2, True),
    ([r"^\* "], 3, "* a\n* b", 2, False),
    ([r"^\* "], None, "* a", 1, True),
    ([r"^\* "], None, "a", 0, False),
    ([r"^\* "], 0, "", 0, True),
    ([r"^\* "], 1, "", 0, False),
    ([], None, "* a", 0, False),
    ([], 0, "anything", 0, True),
    ([r"a", r"b"], 2, "ab ab", 1, False),
    ([r"a", r"b"], 2, "a\nb", 2, True),
    ([r"\d"], 3, "x1\n\n2y\nz\n33", 3, True),
    ([r"^$"], 2, "a\n\n", 2, True),
    ([r"a.b"], 1, "a\nb", 0, False),
    ([r"A"], 1, "a", 0, False),
    ([r"x$"], 1, "x\r\ny", 0, False),
]


@pytest.mark.parametrize("kind", ["regex", "inline_prose"])
@pytest.mark.parametrize(("patterns", "minimum", "text", "lines", "passed"), LINES)
async def test_lines(kind: str, patterns: list[str], minimum: int | None, text: str, lines: int, passed: bool) -> None:
    verifier: dict[str, Any] = {"type": kind, "verify_regex": patterns, "pattern_id": "p"}
    verifier |= {} if minimum is None else {"verify_min_matches": minimum}
    wanted = 1 if minimum is None else minimum
    details = {"matching_lines": lines, "min_matches": wanted, "passed": passed}
    assert await verified(verifier, text) == (float(passed), details)


MARKERS: list[tuple[list[str], list[str], str, list[str], list[str]]] = [
    (["[1]"], [r"\[\d\]"], "so [1]", [], []),
    (["[1]", "[2]"], [r"\[\d\]"], "so [2] [2]", ["[1]"], []),
    (["[1]"], [r"\[\d\]"], "so [1] [3] [2] [3]", [], ["[3]", "[2]", "[3]"]),
    (["[A]"], [r"\[\w\]"], "so [a]", ["[A]"], ["[a]"]),
    (["[1]"], [], "so [1] [9]", [], []),
    ([], [], "anything", [], []),
    ([], [r"\[\d\]"], "so [1]", [], ["[1]"]),
    (["(ref 1)"], [r"\((ref) (\d)\)"], "so (ref 1) (ref 2)", [], ["(ref 2)"]),
    (["[1]"], [r"\[\d\]", r"<\d>"], "<2> [1] [3]", [], ["[3]", "<2>"]),
]


@pytest.mark.parametrize(("expected", "patterns", "text", "missing", "spurious"), MARKERS)
async def test_markers(
    expected: list[str], patterns: list[str], text: str, missing: list[str], spurious: list[str]
) -> None:
    passed = not missing and not spurious
    details = {"expected": expected, "missing": missing, "spurious": spurious, "passed": passed}
    verifier = {"type": "string_match", "expected_markers": expected, "patterns": patterns}
    assert await verified(verifier, text) == (float(passed), details)


async def test_defaults_of_the_marker_check() -> None:
    assert (await verified({"type": "string_match"}, "x"))[0] == 1.0


async def test_text_of_all_messages_is_joined_and_reasoning_left_out() -> None:
    reasoning = {"id": "x", "type": "reasoning", "summary": [{"type": "summary_text", "text": "* thought"}]}
    verifier = {"type": "regex", "verify_regex": [r"^\* "], "verify_min_matches": 2}
    assert (await verified(verifier, reasoning, "* a\n*", message(" b\n", "c")))[1]["matching_lines"] == 2
    assert (await verified(verifier, reasoning))[1]["matching_lines"] == 0


@pytest.mark.parametrize("verifier", [{"type": "telepathy"}, {}, {"type": None}])
async def test_an_unknown_type_is_named(verifier: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match=re.escape(f"no verifier type {verifier.get('type')!r}")):
        await verified(verifier, "x")


@pytest.mark.parametrize(
    "verifier", [{"type": "regex", "verify_regex": ["("]}, {"type": "string_match", "patterns": ["ok", "("]}]
)
async def test_an_invalid_pattern_is_an_error(verifier: dict[str, Any]) -> None:
    with pytest.raises(re.error, match="is no regular expression"):
        await verified(verifier, "x")


@pytest.mark.parametrize(
    "verifier",
    [{"type": "regex", "verify_regex": ["(?:a+)+$"]}, {"type": "string_match", "patterns": ["(?:a+)+$"]}],
)
async def test_a_pattern_without_end_is_a_masked_failure(
    verifier: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nemo_gym.verifiers.patterns.SECONDS", 0.05)
    answer = await server().verify(FormatVerificationVerifyRequest.model_validate(request(verifier, "a" * 64 + "b")))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert "took more than" in (answer.failure_reason or "")


def test_over_http() -> None:
    with TestClient(server().setup_webserver()) as client:
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
        body = request({}, "x")
        del body["verifier"]
        assert client.post("/verify", json=body).status_code == 422


@pytest.mark.parametrize(
    ("name", "agent", "kinds"),
    [
        ("example.jsonl", "freeform_formatting_simple_agent", {"regex", "inline_prose"}),
        ("ds2_freeform_formatting_example.jsonl", "freeform_formatting_simple_agent", {"regex", "inline_prose"}),
        ("ds3_citation_format_example.jsonl", "citation_format_simple_agent", {"string_match"}),
    ],
)
def test_example_rows(name: str, agent: str, kinds: set[str]) -> None:
    rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    assert len(rows) == 5
    assert {row["agent_ref"]["name"] for row in rows} == {agent}
    assert {row["verifier"]["type"] for row in rows} == kinds
    for row in rows:
        TaskData.model_validate({"verifier": row["verifier"]})


GOOD_ANSWERS = [
    "* sun hat\n* water\n* map\n* plasters\n* sandwich",
    "Step 1 - Boil water.\nStep 2 - Warm the pot.\nStep 3 - Add tea.\nStep 4 - Pour.",
    "Type :: rocky planet\nDiameter :: 6,779 km\nMoons :: 2\nLength of a day :: 24.6 hours",
    "| Vehicle | Speed | Power |\n|---|---|---|\n| Bike | 20 | legs |\n| Car | 100 | petrol |\n| Train | 200 | grid |",
    "In autumn **chlorophyll** breaks down, so that **carotenoids** show, and **anthocyanins** are made.",
]


@pytest.mark.parametrize("number", range(5))
async def test_example_rows_can_be_answered(number: int) -> None:
    row = json.loads((DATA / "example.jsonl").read_text().splitlines()[number])
    assert (await verified(row["verifier"], GOOD_ANSWERS[number]))[0] == 1.0
    assert (await verified(row["verifier"], "I would rather not."))[0] == 0.0


@pytest.mark.parametrize("number", range(5))
async def test_cited_markers_earn_the_reward(number: int) -> None:
    verifier = json.loads((DATA / "ds3_citation_format_example.jsonl").read_text().splitlines()[number])["verifier"]
    assert (await verified(verifier, "So it was " + " and ".join(verifier["expected_markers"])))[0] == 1.0
    prompt = json.loads((DATA / "ds3_citation_format_example.jsonl").read_text().splitlines()[number])
    assert (await verified(verifier, prompt["responses_create_params"]["input"][0]["content"]))[0] == 0.0


def test_task_data_refuses_unknown_verifiers() -> None:
    with pytest.raises(ValidationError):
        TaskData.model_validate({"verifier": {"type": "telepathy"}})


@pytest.mark.parametrize("name", ["example_rollouts.jsonl", "ds3_citation_format_example_rollouts.jsonl"])
async def test_example_rollouts_are_still_judged_as_they_were(name: str) -> None:
    records = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    assert len(records) == 5
    for record in records:
        answer = await server().verify(FormatVerificationVerifyRequest.model_validate(record))
        assert (answer.reward, answer.match_details) == (record["reward"], record["match_details"])
