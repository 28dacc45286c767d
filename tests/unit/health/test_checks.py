"""What each check finds, and when it can't tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.health.evaluation import evaluate
from nemo_gym.health.models import CheckScope
from nemo_gym.rollout_health import CHECK_REGISTRY, Finding, RolloutDigest, Verdict, run_health_checks
from tests.unit.health.records import ANSWER, call, gaps, record, trajectory, turn, write

REASONING = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]
SAID_REASONING = [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}]
TOOL_CALL = [{"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"}]
JUDGE = {"type": "responses_api_models", "name": "judge"}


def judged(path: dict[str, Any] | None = None, **changes: Any) -> RolloutDigest:
    return evaluate(json.dumps(record(path=path, **changes)).encode(), 0, 1, ())


def found(check: str, path: dict[str, Any] | None = None, **changes: Any) -> list[Finding]:
    """What one check found; it must have been able to run."""
    digest = judged(path, **changes)
    assert check not in digest.unobserved
    return [finding for finding in digest.findings if finding.check == check]


def details(check: str, path: dict[str, Any] | None = None, **changes: Any) -> list[dict[str, Any]]:
    return [finding.detail for finding in found(check, path, **changes)]


def test_nothing_is_found_in_a_healthy_rollout() -> None:
    digest = judged()
    assert (digest.findings, digest.unobserved, digest.verdict) == ([], [], Verdict.HEALTHY)


def test_a_rollout_without_trajectory_is_unobserved() -> None:
    digest = judged(ng_trajectory=None)
    assert digest.verdict is Verdict.UNOBSERVED
    assert "agent_turn_hollow" in digest.unobserved
    assert digest.rollout_id == "0-0"


@pytest.mark.parametrize("answer", [None, "", "  ", [], [{"type": "message", "content": []}]])
def test_turns_without_anything_are_missing(answer: Any) -> None:
    path = trajectory(turns=[turn(answer=answer, calls=())])
    assert details("rollout_missing_agent_turns", path) == [{"turns": 1}]
    assert found("agent_turn_hollow", path)[0].locator == {"invocation_id": "root", "turn_no": 1}


def test_no_turns_are_missing_turns() -> None:
    assert details("rollout_missing_agent_turns", trajectory(turns=[])) == [{"turns": 0}]


def test_a_turn_that_refers_to_a_call_is_not_missing_but_hollow() -> None:
    path = trajectory(turns=[turn(answer=None)])
    assert found("rollout_missing_agent_turns", path) == []
    assert len(found("agent_turn_hollow", path)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "4",
        ANSWER,
        REASONING,
        SAID_REASONING,
        TOOL_CALL,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
        {"choices": [{"message": {"content": "hi"}}]},
    ],
)
def test_text_reasoning_and_tool_calls_fill_a_turn(answer: Any) -> None:
    assert found("agent_turn_hollow", trajectory(turns=[turn(answer=answer)])) == []


def test_reasoning_beside_the_answer_fills_a_turn() -> None:
    assert found("agent_turn_hollow", trajectory(turns=[turn(answer=None, reasoning_content="hm")])) == []


@pytest.mark.parametrize(
    "failure", [{"status_code": 500}, {"error_category": "timeout"}, {"response_status": "cancelled"}]
)
def test_a_last_call_that_failed_ends_the_rollout_badly(failure: dict[str, Any]) -> None:
    calls = [call("c1", started_at=2.0, **failure), call("c2", started_at=1.0)]
    (detail,) = details("rollout_ended_on_failed_model_call", trajectory(model_calls=calls))
    assert (detail["model_ref"], detail["observed_calls"], detail["successful_calls"]) == ("policy_model", 2, 1)
    (failed,) = found("model_call_failed", trajectory(model_calls=calls))
    assert failed.detail["terminal"] is True
    assert failed.locator == {"model_call_id": "c1", "response_id": "r-c1"}


def test_a_call_that_failed_before_others_is_not_the_end() -> None:
    path = trajectory(model_calls=[call("c1", status_code=429), call("c2", started_at=2.0)])
    assert found("rollout_ended_on_failed_model_call", path) == []
    assert details("model_call_failed", path) == [{"status": 429, "error_category": None, "terminal": False}]


def test_each_model_has_an_end_of_its_own() -> None:
    calls = [call("c1", started_at=1.0, status_code=500, model_ref=JUDGE), call("c2", started_at=2.0)]
    (detail,) = details("rollout_ended_on_failed_model_call", trajectory(model_calls=calls))
    assert detail["model_ref"] == "judge"


def test_calls_without_times_end_badly_only_together() -> None:
    failed = {"started_at": None, "status_code": 500}
    check = "rollout_ended_on_failed_model_call"
    assert found(check, trajectory(model_calls=[call("c1"), call("c2", **failed)])) == []
    assert len(found(check, trajectory(model_calls=[call("c1", **failed), call("c2", **failed)]))) == 1


def test_calls_of_nobody_are_not_the_agents() -> None:
    path = trajectory(model_calls=[call(), call("other", completion_tokens=0, status_code=500, started_at=0.5)])
    assert found("model_call_zero_completion_tokens", path) == []
    assert found("model_call_failed", path) == []


def test_calls_without_tokens_are_found() -> None:
    assert len(found("model_call_zero_completion_tokens", trajectory(model_calls=[call(completion_tokens=0)]))) == 1
    path = trajectory(model_calls=[call(prompt_tokens=None, completion_tokens=None)])
    assert details("model_call_missing_token_counts", path) == [{"missing": ["prompt", "completion"]}]


def test_references_must_match_one_call() -> None:
    check = "trajectory_capture_mismatch"
    assert details(check, trajectory(model_calls=[])) == [{"reason": "missing_captured_call"}]
    by_answer = {"model_ref": call()["response_metadata"]["model_ref"], "response_id": "same"}
    invocation = {"invocation_id": "root", "model_calls": [by_answer]}
    twins = [call("c1", response_id="same"), call("c2", response_id="same")]
    path = trajectory(invocations=[invocation], model_calls=twins)
    assert details(check, path) == [{"reason": "duplicated_captured_call", "count": 2}]
    assert judged(path).statistics.replayed == 1


def test_gaps_of_joining_are_mismatches() -> None:
    path = trajectory(gaps=[{"code": "model_call_reference_conflict", "invocation_id": "root", "detail": "d"}])
    (finding,) = found("trajectory_capture_mismatch", path)
    assert finding.detail["reason"] == "conflicting_call_ownership"
    assert finding.locator == {"invocation_id": "root"}


def test_tokens_of_answer_and_calls_must_agree() -> None:
    (detail,) = details("rollout_token_count_mismatch", trajectory(model_calls=[call(prompt_tokens=11)]))
    assert detail == {"transcript": {"prompt": 10, "completion": 5}, "captured": {"prompt": 11, "completion": 5}}


def test_tokens_of_a_call_that_two_turns_share_count_once() -> None:
    path = trajectory(turns=[turn(1), turn(2)])
    assert found("rollout_token_count_mismatch", path) == []


@pytest.mark.parametrize(
    ("path", "response"),
    [
        (trajectory(gaps=gaps("turn_model_call_scope_incomplete")), None),
        (trajectory(turns=[turn(), turn(2, calls=())]), None),
        (trajectory(model_calls=[call(completion_tokens=None)]), None),
        (trajectory(turns=[turn(calls=("lost",))]), None),
        (trajectory(), {}),
        (trajectory(), {"usage": {"input_tokens": 10}}),
    ],
)
def test_tokens_are_compared_only_where_all_are_known(path: dict[str, Any], response: Any) -> None:
    digest = judged(path) if response is None else judged(path, response=response)
    assert "rollout_token_count_mismatch" in digest.unobserved


@pytest.mark.parametrize("reason", ["length", "max_output_tokens", "max_tokens"])
def test_a_call_that_was_cut_off_before_it_said_anything_ran_away(reason: str) -> None:
    check = "model_call_runaway_generation"
    nothing: dict[str, Any] = {"choices": [{"message": {"content": ""}}]}
    silent: list[dict[str, Any]] = [{"output": REASONING}, {"output": SAID_REASONING}, nothing, {"content": []}]
    for payload in silent:
        assert len(found(check, trajectory(model_calls=[call(finish_reason=reason, response=payload)]))) == 1
    speaking: list[dict[str, Any]] = [{"output": ANSWER}, {"output": TOOL_CALL}, {"content": [{"text": "x"}]}]
    for payload in speaking:
        assert found(check, trajectory(model_calls=[call(finish_reason=reason, response=payload)])) == []
    unrecorded = trajectory(model_calls=[call(finish_reason=reason, response=None)])
    assert check in judged(unrecorded).unobserved


@pytest.mark.parametrize(
    ("code", "blind"),
    [
        ("turns_unavailable", {"rollout_missing_agent_turns", "agent_turn_hollow", "rollout_token_count_mismatch"}),
        ("model_call_capture_incomplete", {"model_call_failed", "rollout_ended_on_failed_model_call"}),
        ("model_calls_unavailable", {"trajectory_capture_mismatch", "model_call_runaway_generation"}),
        ("trajectory_projection_failed", {"agent_turn_hollow", "model_call_failed"}),
        ("conversation_unavailable", set()),
    ],
)
def test_gaps_blind_the_checks_that_need_what_is_missing(code: str, blind: set[str]) -> None:
    digest = judged(trajectory(gaps=gaps(code)))
    assert blind <= set(digest.unobserved)
    assert digest.verdict is (Verdict.UNOBSERVED if blind else Verdict.HEALTHY)
    if code == "turns_unavailable":
        assert "model_call_failed" not in digest.unobserved


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(view: Any) -> list[Finding]:
        raise ZeroDivisionError("no")

    broken = replace(CHECK_REGISTRY["agent_turn_hollow"], run=fail)
    monkeypatch.setitem(CHECK_REGISTRY, "agent_turn_hollow", broken)
    result = run_health_checks(write(tmp_path / "r.jsonl", [record()]))
    (digest,) = result.rollouts
    assert digest.unobserved == ["agent_turn_hollow"]
    assert digest.findings == [
        Finding("check_execution_error", {"failed_check": "agent_turn_hollow", "error": "ZeroDivisionError: no"})
    ]


def test_the_registry_has_fourteen_checks() -> None:
    assert len(CHECK_REGISTRY) == 14
    assert [id for id, spec in CHECK_REGISTRY.items() if spec.scope is CheckScope.TASK] == [
        "task_consistently_unhealthy",
        "task_no_successful_model_calls",
    ]
    assert all(id == spec.id for id, spec in CHECK_REGISTRY.items())
