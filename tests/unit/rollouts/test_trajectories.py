from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.rollout_collection import _attach_trajectory_record, _build_trajectory_record
from nemo_gym.rollout_observability import TrajectoryRecord

ROW = {"_ng_task_index": 4, "_ng_rollout_index": 2}
REF = {"type": "responses_api_models", "name": "policy"}


def captured(number: int, **fields: Any) -> dict[str, Any]:
    response = {"id": f"r{number}", "output": [{"type": "message", "text": f"answer {number}"}], "status": "completed"}
    call: dict[str, Any] = {
        "call_index": number,
        "model_call_id": f"m{number}",
        "model_ref": REF,
        "response_id": f"r{number}",
        "started_at": 10.0 + number,
        "request": {"input": f"question {number}"},
        "response": response,
        "tokens_in": 5,
    }
    return ModelCallRecord.model_validate({**call, **fields}).model_dump(mode="json")


def capture(*calls: dict[str, Any], gaps: Any = ()) -> dict[str, Any]:
    return {"rollout_id": "4-2", "metrics": {}, "calls": list(calls), "gaps": list(gaps)}


def invocation(name: str = "inv", *call_ids: str, **fields: Any) -> dict[str, Any]:
    references = [{"model_call_id": call_id} for call_id in call_ids]
    return {"kind": "agent_invocation", "invocation_id": name, "model_calls": references, **fields}


def observed(*records: dict[str, Any], gaps: Any = ()) -> dict[str, Any]:
    return {"source": "agent", "records": list(records), "gaps": list(gaps)}


def turn(turn_no: int = 1, timestamp: float = 1.0, **fields: Any) -> dict[str, Any]:
    identity = {"task_id": "4", "rollout_id": "4-2", "invocation_id": "inv"}
    return {**identity, "turn_no": turn_no, "timestamp": timestamp, "step_count": 0, **fields}


def produced(**fields: Any) -> dict[str, Any]:
    return {"task_id": "4", "rollout_id": "4-2", "invocations": [invocation()], "turns": [turn()], **fields}


def codes(trajectory: TrajectoryRecord) -> list[str]:
    return [gap.code for gap in trajectory.gaps]


def build(result: dict[str, Any], **row: Any) -> TrajectoryRecord:
    return _build_trajectory_record({**ROW, **row}, result)


@pytest.mark.parametrize(
    ("row", "task_id"),
    [({}, "4"), ({"task_id": None, "problem_id": 7}, "7"), ({"task_id": "t", "instance_id": "i"}, "t")],
)
def test_it_is_named_by_the_task_and_the_attempt(row: dict[str, Any], task_id: str) -> None:
    trajectory = build({}, **row, _ng_attempt_index=1)
    assert (trajectory.task_id, trajectory.rollout_id) == (task_id, "4-2-a1")


def test_what_the_producer_wrote_is_taken_over() -> None:
    turns = [turn(2, 5.0), turn(1, 3.0)]
    trajectory = build({"ng_trajectory": produced(turns=turns, gaps=[{"code": "own"}])})
    assert [entry.turn_no for entry in trajectory.turns] == [1, 2]
    assert codes(trajectory) == ["own", "model_calls_unavailable", "conversation_unavailable"]


def test_a_producer_without_turns_is_believed() -> None:
    assert "turns_unavailable" not in codes(build({"ng_trajectory": produced(turns=[])}))


def test_foreign_ids_are_replaced_and_told() -> None:
    foreign = produced(task_id="other", turns=[turn(task_id="other")])
    trajectory = build({"ng_trajectory": foreign})
    assert trajectory.turns[0].task_id == "4"
    (gap,) = [gap for gap in trajectory.gaps if gap.code == "producer_trajectory_identity_mismatch"]
    assert gap.detail == "task_id"


def test_a_producer_s_trajectory_that_is_none_is_a_gap() -> None:
    trajectory = build({"ng_trajectory": {"task_id": 5}})
    assert codes(trajectory)[0] == "producer_trajectory_invalid" and "turns_unavailable" in codes(trajectory)


def test_observations_add_what_is_not_there_yet() -> None:
    conversation = [{"type": "function_call_output", "call_id": "c1", "output": "42"}]
    tool = {"kind": "tool_call", "invocation_id": "inv", "tool_call_id": "c1", "tool_name": "f", "status": "unknown"}
    bundle = observed(invocation("inv", conversation=conversation), invocation("sub"), tool, gaps=[{"code": "seen"}])
    known = {"kind": "tool_call", "invocation_id": "inv", "tool_call_id": "c1", "status": "failed", "duration_ms": 3}
    trajectory = build({"ng_trajectory": produced(tool_calls=[known]), "ng_agent_observations": bundle})
    assert [entry.invocation_id for entry in trajectory.invocations] == ["inv", "sub"]
    (call,) = trajectory.tool_calls
    assert (call.status, call.tool_name, call.duration_ms, call.output) == ("failed", "f", 3, "42")
    assert "seen" in codes(trajectory)
    alone = build({"ng_agent_observations": bundle})
    assert [(entry.tool_call_id, entry.output) for entry in alone.tool_calls] == [("c1", "42")]
    assert "conversation_unavailable" not in codes(alone)


def test_a_known_status_replaces_an_unknown_one() -> None:
    known = {"kind": "tool_call", "invocation_id": "inv", "tool_call_id": "c1"}
    bundle = observed({**known, "status": "completed"})
    trajectory = build({"ng_trajectory": produced(tool_calls=[known]), "ng_agent_observations": bundle})
    assert trajectory.tool_calls[0].status == "completed"


def test_observations_that_are_none_are_a_gap() -> None:
    assert codes(build({"ng_agent_observations": {"records": [{"kind": "?"}]}}))[0] == "agent_observations_invalid"


def test_captured_calls_are_projected() -> None:
    trajectory = build(
        {
            "ng_model_call_capture": capture(
                captured(0, latency_total_ms=7.5, cached_tokens=2, finish_reason="stop", latency_ttft_ms=1.0),
                captured(1, request=None, request_raw="asked", response=None, response_raw="said", response_id=None),
                gaps=[{"code": "model_call_capture_incomplete"}],
            )
        }
    )
    first, second = trajectory.model_calls
    assert first.request == {"input": "question 0"} and first.duration_ms == 7.5
    assert (first.token_stats.prompt_tokens, first.token_stats.cached_tokens) == (5, 2)
    assert first.response_metadata.response_status == "completed" and first.response_metadata.finish_reason == "stop"
    assert first.response_metadata.latency_ttft_ms == 1.0
    assert (second.request, second.response) == ("asked", "said")
    assert codes(trajectory) == ["turns_unavailable", "conversation_unavailable", "model_call_capture_incomplete"]


def test_a_captured_call_completes_the_producer_s_of_the_same_id() -> None:
    own = {"model_call_id": "m0", "duration_ms": 1.0, "token_stats": {"completion_tokens": 9}}
    result = {"ng_trajectory": produced(model_calls=[own]), "ng_model_call_capture": capture(captured(0), captured(1))}
    first, second = build(result).model_calls
    assert (first.duration_ms, first.started_at, second.model_call_id) == (1.0, 10.0, "m1")
    assert (first.token_stats.completion_tokens, first.token_stats.prompt_tokens) == (9, 5)
    assert first.response_metadata.response_id == "r0"


def test_turns_are_made_of_captured_calls_that_somebody_owns() -> None:
    tools = [{"id": "a", "name": "f", "arguments": "{}"}, {"id": "b", "name": "f", "arguments": "{}"}]
    calls = [
        captured(2, started_at=30.0),
        captured(0, tool_calls=tools, reasoning_content="why"),
        captured(1),
        captured(3),
        captured(4, response=None, response_id=None),
    ]
    by_answer = {"model_ref": REF, "response_id": "r1"}
    bundle = observed(
        {**invocation("inv", "m0", "m4"), "model_calls": [{"model_call_id": "m0"}, {"model_call_id": "m4"}, by_answer]},
        invocation("sub", "m2"),
    )
    result = {"ng_agent_observations": bundle, "ng_model_call_capture": capture(*calls), "resolved": True}
    turns = build(result).turns
    assert [(entry.invocation_id, entry.turn_no, entry.timestamp) for entry in turns] == [
        ("inv", 1, 10.0),
        ("inv", 2, 11.0),
        ("sub", 1, 30.0),
    ]
    assert [entry.step_count for entry in turns] == [0, 2, 0]
    assert [entry.resolved for entry in turns] == [None, None, True]
    assert turns[0].question == "question 0" and turns[0].reasoning_content == "why"
    assert turns[0].answer == [{"type": "message", "text": "answer 0"}]
    assert [reference.response_id or reference.model_call_id for reference in turns[1].model_calls] == ["r1"]


def test_equal_gaps_are_told_once() -> None:
    gaps = [{"code": "x"}, {"code": "x"}, {"code": "x", "detail": "y"}]
    assert codes(build({"ng_model_call_capture": capture(captured(0), gaps=gaps)})).count("x") == 2


# --- attaching --------------------------------------------------------------------------------------------------------


def test_a_result_without_evidence_stays_as_it_is() -> None:
    result = {"reward": 1.0}
    _attach_trajectory_record(ROW, result)
    assert result == {"reward": 1.0}


def test_payloads_move_from_the_capture_into_the_trajectory() -> None:
    result: dict[str, Any] = {"ng_model_call_capture": capture(captured(0, request_raw="x", response_raw="y"))}
    _attach_trajectory_record(ROW, result)
    assert result["ng_trajectory"]["model_calls"][0]["request"] == {"input": "question 0"}
    (call,) = result["ng_model_call_capture"]["calls"]
    assert not {"request", "response", "request_raw", "response_raw"} & set(call) and call["tokens_in"] == 5
    again = dict(result)
    _attach_trajectory_record(ROW, again)
    assert again["ng_trajectory"]["model_calls"] == result["ng_trajectory"]["model_calls"]


def test_what_cant_be_put_together_never_fails_the_run() -> None:
    twice = produced(turns=[], invocations=[invocation("a", parent_invocation_id="b")])
    loop = observed(invocation("b", parent_invocation_id="a"))
    result: dict[str, Any] = {"ng_trajectory": twice, "ng_agent_observations": loop}
    _attach_trajectory_record(ROW, {**result, "ng_model_call_capture": (kept := capture(captured(0)))})
    assert kept["gaps"] == [{"code": "trajectory_projection_failed", "detail": "ValidationError"}]
    assert kept["calls"][0]["request"] is not None
    _attach_trajectory_record(ROW, result)
    assert loop["gaps"] == [{"code": "trajectory_projection_failed", "detail": "ValidationError"}]
    no_id = {"ng_trajectory": produced()}
    _attach_trajectory_record({**ROW, "_ng_rollout_id": "../x"}, no_id)
    assert no_id["ng_trajectory"]["rollout_id"] == "unknown"
    assert no_id["ng_trajectory"]["gaps"][0]["code"] == "trajectory_projection_failed"
