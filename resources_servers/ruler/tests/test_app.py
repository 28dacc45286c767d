from __future__ import annotations

import json
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
from resources_servers.ruler.app import SUBSETS, RulerResourcesServer, RulerResourcesServerConfig
from resources_servers.ruler.generate_data import KINDS, prepare, rows

FOLDER = Path(__file__).parents[1]
PROMPT = "The code of Ann is 123. The code of Bob is 456. What are the codes?"


def request(outputs: Any, *output: str | dict[str, Any], subset: str = "niah_multivalue") -> dict[str, Any]:
    return verify_request({"outputs": outputs, "length": 8, "subset": subset}, *output, question=PROMPT)


TWO = ["123", "456"]
CASES = [
    Case("both", request(TWO, "456 and 123"), 1.0, own={"niah_multivalue": 1.0, "vt": None, "outputs": TWO}),
    Case("one of two", request(TWO, "It is 456."), 0.5, own={"niah_multivalue": 0.5, "length": 8}),
    Case("none", request(TWO, "789"), 0.0, own={"niah_multivalue": 0.0}),
    Case("nothing", request(TWO), 0.0),
    Case("case", request(["Oslo"], "OSLO"), 1.0),
    Case("case of the reference", request(["OSLO"], "oslo"), 1.0),
    Case("twice the same", request(["123", "123"], "123"), 1.0),
    Case("messages are joined", request(["1234"], message("1", "2"), reasoning("no"), "34"), 1.0),
    Case("reasoning isn't read", request(["123"], reasoning("123")), 0.0),
    Case("within a word", request(["12"], "3124"), 1.0),
    Case("within a word is not enough", request(["12"], "3124"), 0.0, settings={"whole_words": True}),
    Case("a word", request(["12", "a+"], "12, (a+)"), 1.0, settings={"whole_words": True}),
    Case("qa: one is enough", request(TWO, "123", subset="qa_1"), 1.0, own={"qa_1": 1.0, "qa_2": None}),
    Case("qa: none", request(TWO, "7", subset="qa_2"), 0.0, own={"qa_2": 0.0}),
    Case("another subset", request(TWO, "123", subset="mask_sample"), 0.5, own={"vt": None, "subset": "mask_sample"}),
    Case("the prompt", request(TWO, f" {PROMPT.upper()}\n{PROMPT}"), 0.0),
    Case("the prompt and an answer", request(TWO, f"{PROMPT}\n456"), 0.5),
    Case("most of the prompt", request(TWO, PROMPT[:-1]), 1.0),
    Case("most of the prompt, bounded", request(TWO, PROMPT[:-1]), 0.0, settings={"max_answer_chars": 10}),
    Case("as long as it may be", request(TWO, "123 456 1 "), 1.0, settings={"max_answer_chars": 9}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    await check_case(new_server(RulerResourcesServer, **case.settings), case)


@pytest.mark.parametrize("outputs", [[], [""], ["123", " \n"]])
@pytest.mark.parametrize("subset", ["qa_1", "vt"])
async def test_a_row_without_references_is_no_wrong_answer(outputs: list[str], subset: str) -> None:
    verdict = await verified(new_server(RulerResourcesServer), request(outputs, "123", subset=subset))
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, True, "verifier_error")
    assert (verdict.qa_1, verdict.vt) == (None, None)
    assert "outputs must be" in verdict.failure_reason


@pytest.mark.parametrize("text", ["12" * 1_000_000, "\x00\u202e\uffff", "a\u0301" * 300_000, "[" * 1_000_000])
@pytest.mark.parametrize("whole_words", [False, True])
async def test_hostile_texts_are_wrong_answers(text: str, whole_words: bool) -> None:
    server = new_server(RulerResourcesServer, whole_words=whole_words)
    assert (await verified(server, request(["1" * 500 + "3", "a b"], text))).reward == 0.0


def test_over_http() -> None:
    with TestClient(new_server(RulerResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=request(TWO, "123")).json()
        assert client.get("/reverify_mode").json() == "stateless"
        for wrong in ({"outputs": "123"}, {"outputs": [1]}, {"length": "x"}, {"subset": None}):
            assert client.post("/verify", json=request(TWO, "123") | wrong).status_code == 422
        records = [record | {"_ng_task_index": 0, "_ng_rollout_index": 0}]
        metrics = client.post("/aggregate_metrics", json={"verify_responses": records}).json()["agent_metrics"]
    assert list(record)[2:] == [
        "reward", "mask_sample", "failure_kind", "failure_reason", *SUBSETS, "outputs", "length", "subset"
    ]  # fmt: skip
    assert metrics["mean/niah_multivalue"] == 0.5
    assert "mean/vt" not in metrics


def test_the_subsets_are_ruler_s() -> None:
    niah = [f"niah_{kind}_{number}" for kind in ("multikey", "single") for number in (1, 2, 3)]
    assert sorted(SUBSETS) == sorted([*niah, "niah_multiquery", "niah_multivalue", "vt", "cwe", "fwe", "qa_1", "qa_2"])


def test_settings_out_of_range() -> None:
    with pytest.raises(ValidationError):
        RulerResourcesServerConfig.model_validate(
            {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n", "max_answer_chars": 0}
        )


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [100, 1500])
async def test_generated_rows_can_be_answered(words: int) -> None:
    server = new_server(RulerResourcesServer, whole_words=True)
    made = list(rows("train", len(KINDS), words))
    assert [row["subset"] for row in made] == list(KINDS) == [name for name in KINDS if name in SUBSETS]
    for row in made:
        prompt = row["responses_create_params"]["input"][0]["content"]
        assert all(reference in prompt for reference in row["outputs"])
        assert 0.5 * words <= row["length"] <= 2 * words + 200, row["subset"]
        assert (await verified(server, verify_request(row, " ".join(row["outputs"])))).reward == 1.0
        assert (await verified(server, verify_request(row, prompt))).reward == 0.0
        question = prompt.rpartition("\n\n")[2]
        assert (await verified(server, verify_request(row, question))).reward == 0.0


def test_what_is_counted_is_most_frequent() -> None:
    for row in rows("validation", 3 * len(KINDS), 800):
        words = row["responses_create_params"]["input"][0]["content"].split()
        counts = sorted((words.count(word) for word in set(words) if len(word) == 8 and word.isalpha()), reverse=True)
        if row["subset"] in ("cwe", "fwe"):
            wanted = sorted((words.count(word) for word in row["outputs"]), reverse=True)
            assert wanted == counts[: len(wanted)]
            assert wanted[-1] > counts[len(wanted)]


def test_a_split_is_always_the_same_and_none_is_another(tmp_path: Path) -> None:
    assert (
        prepare("train", tmp_path / "a.jsonl", 22).read_text() == prepare("train", tmp_path / "b.jsonl", 22).read_text()
    )
    assert not {json.dumps(row) for row in rows_of(tmp_path / "a.jsonl")} & set(map(json.dumps, rows("validation", 22)))


def test_example_rows() -> None:
    assert {row["subset"] for row in check_example_rows(FOLDER)} <= set(SUBSETS)


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    server = new_server(RulerResourcesServer)
    await check_example_rollouts(server, FOLDER, own=["fwe", "qa_1"], rewards=[1.0, 0.75, 1.0, 0.0, 2 / 3])
