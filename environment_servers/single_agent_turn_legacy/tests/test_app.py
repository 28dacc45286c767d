from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from environment_servers.single_agent_turn.tests.world import (
    CALL,
    EPISODE,
    MESSAGE,
    PARAMS,
    ROW,
    TASK_ID,
    World,
    install,
    reply,
    turn_of,
)
from environment_servers.single_agent_turn_legacy.app import SingleAgentTurnLegacyEnvironmentServer


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return install(World(), monkeypatch)


def post(world: World, row: Any) -> Any:
    app = world.server(SingleAgentTurnLegacyEnvironmentServer).setup_webserver()
    return TestClient(app, raise_server_exceptions=False).post("/run", json=row)


def test_a_row_becomes_an_episode_and_its_result_a_row(world: World) -> None:
    record = post(world, ROW).json()
    assert record["reward"] == 1.0 and record["agent_ref"] == {"name": "agent"}
    assert [item["type"] for item in record["response"]["output"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    assert record["ng_agent_observations"]["source"] == "simple_agent"
    assert not any(key.startswith("_ng_") for key in record)
    (seed,) = world.to("weather", "/seed_session")
    assert seed["json"]["episode_id"] == {"rollout_id": "7-0", "attempt": 0}
    assert seed["json"]["task_id"] == {"taskset": "weather", "task_id": "7"}
    assert seed["json"]["task_data"] == {"hint": "cold"}


def test_an_episode_request_is_answered_with_a_row_too(world: World) -> None:
    assert post(world, EPISODE).json()["reward"] == 1.0
    assert world.to("weather", "/seed_session")[0]["json"]["task_id"] == TASK_ID


def test_a_task_keeps_its_own_id_and_the_attempt_is_told(world: World) -> None:
    post(world, {**ROW, "problem_id": 3, "_ng_attempt_index": 2, "_ng_rollout_id": "mine", "task_source": "agent"})
    (seed,) = world.to("weather", "/seed_session")
    assert seed["json"]["episode_id"] == {"rollout_id": "mine", "attempt": 2}
    assert seed["json"]["task_id"] == {"taskset": "agent", "task_id": "3"}


def test_a_row_that_is_a_task_is_taken_as_it_is(world: World) -> None:
    task = {"task_id": TASK_ID, "task_input": {"responses_create_params": PARAMS, "hint": 1}}
    assert post(world, {**task, "_ng_task_index": 0, "_ng_rollout_index": 1}).json()["reward"] == 1.0
    assert world.to("weather", "/seed_session")[0]["json"]["task_data"] == {"hint": 1}


def test_null_observations_are_left_out(world: World) -> None:
    closed = {"agent_observations": None, "resources_cookies": None}
    world.turns = [turn_of(MESSAGE)]
    world.interfere = lambda _, path: (
        reply({**closed, "agent_session_id": world.sent[-1]["json"]["agent_session_id"]})
        if path == "/v1/agent_sessions/close"
        else None
    )
    record = post(world, ROW).json()
    assert record["reward"] == 0.0 and "ng_agent_observations" not in record


def test_a_failure_is_a_row_with_what_is_known(world: World) -> None:
    world.interfere = lambda _, path: reply("went wrong", 400) if path == "/verify" else None
    record = post(world, {**ROW, "agent_ref": {"name": "agent"}}).json()
    assert (record["_ng_failure_class"], record["_ng_failure_terminal"]) == ("environment_server_failed", True)
    assert "went wrong" in record["_ng_failure_message"] and record["_ng_failure_stage"] == "verification"
    assert record["_ng_failure_partial_response"]["output"][-1]["type"] == "message"
    assert record["agent_ref"] == {"name": "agent"}


def test_a_failure_without_a_response_has_no_partial_one(world: World) -> None:
    world.interfere = lambda _, path: reply("went wrong", 503) if path == "/seed_session" else None
    record = post(world, ROW).json()
    assert record["_ng_failure_terminal"] is False and "_ng_failure_partial_response" not in record


def test_a_verdict_whose_judge_failed_stays_what_it_is(world: World) -> None:
    world.turns = [turn_of(CALL), turn_of(MESSAGE, metadata={"judge": "1"})]
    record = post(world, ROW).json()
    assert (record["_ng_failure_class"], record["mask_sample"]) == ("judge_failed", True)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"task_source": "elsewhere"}, "weather, agent, env"),
    ({"agent_ref": {"name": "another"}}, "another"),
    ({"_ng_attempt_index": -1}, "_ng_attempt_index"),
    ({"_ng_attempt_index": True}, "_ng_attempt_index"),
    ({"_ng_attempt_index": "1"}, "_ng_attempt_index"),
    ({"_ng_rollout_index": None}, "_ng_rollout_index"),
    ({"_ng_rollout_id": "../x"}, "_ng_rollout_id"),
    ({"_ng_rollout_id": "x-a1"}, "-a<N>"),
    ({"responses_create_params": {}}, "input"),
    ({"task_data": {"hint": "warm"}}, "hint"),
]


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_a_row_that_does_not_belong_here_is_refused(world: World, change: dict[str, Any], told: str) -> None:
    answer = post(world, {**ROW, **change})
    assert answer.status_code == 422 and told in answer.text
    assert not world.calls


@pytest.mark.parametrize("body", [[], "x", None, 3])
def test_what_is_no_row_is_refused(world: World, body: Any) -> None:
    assert post(world, body).status_code == 422


@pytest.mark.parametrize("source", ["weather", "agent", "env"])
def test_rows_of_the_bound_instances_are_taken(world: World, source: str) -> None:
    assert post(world, {**ROW, "task_source": source}).status_code == 200


def test_metrics_are_those_of_the_resources_server(world: World) -> None:
    client = TestClient(world.server(SingleAgentTurnLegacyEnvironmentServer).setup_webserver())
    responses = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 0.5}]
    metrics = client.post("/aggregate_metrics", json={"verify_responses": responses}).json()
    assert metrics["key_metrics"]["mean/reward"] == 0.5
