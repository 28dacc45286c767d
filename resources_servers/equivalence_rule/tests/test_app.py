from __future__ import annotations

import random
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.testing.responses import message, reasoning, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    verified,
)
from resources_servers.equivalence_rule.app import (
    EquivalenceRuleResourcesServer,
    EquivalenceRuleResourcesServerConfig,
    GradingRule,
    _normalize,
)

FOLDER = Path(__file__).parents[1]
SEQ, WEIGHTED = {"grading_rule": "seq_match"}, {"grading_rule": "weighted_seq_match"}


def request(expected: str, *output: str | dict[str, Any], **row: Any) -> dict[str, Any]:
    return verify_request({"expected_answer": expected, **row}, *output)


CASES = [
    Case("equal", request("Oslo", "Oslo"), 1.0, own={"equivalence_score": 1.0, "expected_answer": "Oslo"}),
    Case("not equal", request("Oslo", "Oslo!"), 0.0, own={"equivalence_score": 0.0}),
    Case("nothing", request("Oslo"), 0.0),
    Case("case and spaces", request(" the  Old\nhouse", "The old\t house \n"), 1.0),
    Case("messages are joined", request("Oslo", message("Os", "l"), reasoning("no"), "o"), 1.0),
    Case("ratio: equal", request("Oslo", "oslo"), 1.0, settings=SEQ),
    Case("ratio: a part", request("abcd", "bcd e"), 2 * 3 / 9, settings=SEQ),
    Case("ratio: nothing of it", request("abcd", "xyz"), 0.0, settings=SEQ),
    Case("ratio: nothing", request("abcd"), 0.0, settings=SEQ),
    Case("ratio: of what order", request("diet", "tide"), 0.25, settings=SEQ),
    Case("ratio: the other order", request("tide", "diet"), 0.5, settings=SEQ),
    Case("ratio: junk", request("ab" * 100, "c" + "ab" * 100), 0.0, settings=SEQ),
    Case("ratio: too short for junk", request("ab" * 99, "c" + "ab" * 99), 396 / 397, settings=SEQ),
    Case("weighted: equal", request("Oslo", "oslo"), 1.0, settings=WEIGHTED),
    Case("weighted: no beginning", request("0123456789abcdefghij", "abcdefghij"), 0.85 * 2 / 3, settings=WEIGHTED),
    Case("weighted: beginning", request("0123456789abcdefghij", "0123456789"), 0.85 * 2 / 3 + 0.15, settings=WEIGHTED),
    Case("weighted: a short one", request("abc", "abcdef"), 0.85 * 6 / 9 + 0.15, settings=WEIGHTED),
    Case("weighted: nothing", request("abc"), 0.0, settings=WEIGHTED),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    verdict = await verified(new_server(EquivalenceRuleResourcesServer, **case.settings), case.request)
    assert verdict.reward == pytest.approx(case.reward)
    assert verdict.equivalence_score == verdict.reward
    if not case.settings:
        await check_case(new_server(EquivalenceRuleResourcesServer), case)


async def test_ratios_are_those_of_sequence_matcher() -> None:
    source = random.Random(7)
    server = new_server(EquivalenceRuleResourcesServer, **SEQ)
    for _ in range(5):
        one, other = ("".join(source.choices("abcdefg ", k=300)) for _ in range(2))
        response, answer = _normalize(one), _normalize(other)
        expected = SequenceMatcher(None, response, answer).ratio()
        assert (await verified(server, request(other, one))).reward == expected


@pytest.mark.parametrize("expected", ["", " \n"])
@pytest.mark.parametrize("rule", list(GradingRule))
async def test_a_row_without_an_answer_is_no_wrong_answer(expected: str, rule: GradingRule) -> None:
    verdict = await verified(new_server(EquivalenceRuleResourcesServer, grading_rule=rule), request(expected, ""))
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, True, "verifier_error")
    assert "expected_answer is blank" in verdict.failure_reason


SLOW = {**SEQ, "comparison_timeout_seconds": 0.01}


async def test_a_comparison_without_end_is_a_masked_failure() -> None:
    verdict = await verified(new_server(EquivalenceRuleResourcesServer, **SLOW), request("ab" * 90_000, "ba" * 900_000))
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, True, "verifier_error")


async def test_an_endless_answer_does_not_mask_its_rollout() -> None:
    settings = {**SEQ, "comparison_timeout_seconds": 1.0}
    verdict = await verified(new_server(EquivalenceRuleResourcesServer, **settings), request("a" * 199, "a" * 900_000))
    assert (verdict.reward, verdict.mask_sample, verdict.failure_kind) == (0.0, False, None)
    assert "took more than 1 s" in verdict.failure_reason


@pytest.mark.parametrize("text", ["\x00\u202e\uffff", "a\u0301" * 100_000, "\\" * 1_000_000, "[" * 1_000_000])
@pytest.mark.parametrize("rule", list(GradingRule))
async def test_hostile_texts_are_wrong_answers(text: str, rule: GradingRule) -> None:
    verdict = await verified(new_server(EquivalenceRuleResourcesServer, grading_rule=rule), request("Oslo", text))
    assert verdict.reward < 0.01


def test_over_http_a_record_keeps_the_row() -> None:
    old = {"reward": 7, "mask_sample": True, "equivalence_score": 5, "hashid": "h", "context_length": "128"}
    with TestClient(new_server(EquivalenceRuleResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=request("Oslo", "oslo", **old)).json()
        assert client.get("/reverify_mode").json() == "stateless"
        for wrong in ({}, {"expected_answer": None}, {"expected_answer": 5}):
            assert client.post("/verify", json=verify_request(wrong, "x")).status_code == 422
    assert (record["reward"], record["mask_sample"], record["equivalence_score"]) == (1.0, False, 1.0)
    assert (record["hashid"], record["context_length"], record["expected_answer"]) == ("h", "128", "Oslo")


def test_the_config_knows_its_rules() -> None:
    address = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n"}
    for wrong in ({"grading_rule": "telepathy"}, {"comparison_timeout_seconds": 0}):
        with pytest.raises(ValidationError):
            EquivalenceRuleResourcesServerConfig.model_validate(address | wrong)


def test_the_flavour_s_keys_are_the_config_s() -> None:
    loaded: Any = OmegaConf.to_container(OmegaConf.load(FOLDER / "configs" / "lc.yaml"))
    block = loaded["lc_equivalence_rule"]["resources_servers"]["equivalence_rule"]
    known = {*EquivalenceRuleResourcesServerConfig.model_fields, "domain", "verified", "value", "description"}
    assert set(block) <= known
    assert [path.stem for path in (FOLDER / "configs").iterdir()] == ["lc"]


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        assert row["expected_answer"].startswith(row["hashid"])
        texts = [turn["content"] for turn in row["responses_create_params"]["input"][:-1]]
        assert row["expected_answer"].removeprefix(row["hashid"]) in texts


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    await check_example_rollouts(new_server(EquivalenceRuleResourcesServer), FOLDER, own=["equivalence_score"])
