from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import ResourcesSeedSessionRequest
from nemo_gym.testing.responses import verify_request
from nemo_gym.testing.session_conformance import check_resources_session_contract
from nemo_gym.testing.verdicts import check_example_rows, new_server, rows_of
from resources_servers.example_session_state_mgmt.app import StatefulCounterResourcesServer

FOLDER = Path(__file__).parents[1]


@pytest.fixture
def app() -> FastAPI:
    return new_server(StatefulCounterResourcesServer).setup_webserver()


def asked(initial: Any = 0, expected: Any = 0) -> dict[str, Any]:
    return verify_request({"initial_count": initial, "expected_count": expected}, "Done.")


def reward(client: TestClient, expected: int) -> float:
    answer = client.post("/verify", json=asked(0, expected))
    assert answer.status_code == 200
    return float(answer.json()["reward"])


@dataclass
class Counted:
    """A session with a seed (or none), what is added to its counter, and the reward for the expected count."""

    name: str
    seed: int | None
    expected: int
    reward: float
    added: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


CASES = [
    Counted("right", 5, 12, 1.0, [3, 4]),
    Counted("one too few", 5, 12, 0.0, [3, 3]),
    Counted("too much", 5, 12, 0.0, [12]),
    Counted("nothing done", 5, 12, 0.0),
    Counted("nothing to do", 5, 5, 1.0),
    Counted("nothing to do, but done", 5, 5, 0.0, [1]),
    Counted("done and undone", 5, 5, 1.0, [1, -1]),
    Counted("below zero", 5, -3, 1.0, [-8]),
    Counted("zero added", 5, 5, 1.0, [0]),
    Counted("without a seed from zero", None, 3, 1.0, [1, 2]),
    Counted("without a counter", None, 0, 0.0),
    Counted("large", 2**53, 2**54, 1.0, [2**53]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(app: FastAPI, case: Counted) -> None:
    client = TestClient(app)
    if case.seed is not None:
        assert client.post("/seed_session", json={"initial_count": case.seed}).json() == {}
    for count in case.added:
        assert client.post("/increment_counter", json={"count": count}).json() == {"success": True}
    value = client.post("/get_counter_value").json()
    assert value == {"count": (case.seed or 0) + sum(case.added)}
    assert reward(client, case.expected) == case.reward


def test_reading_begins_no_counter(app: FastAPI) -> None:
    client = TestClient(app)
    assert client.post("/get_counter_value", json={}).json() == {"count": 0}
    assert reward(client, 0) == 0.0


def test_sessions_are_told_apart_by_their_cookies_alone(app: FastAPI) -> None:
    """One client that keeps no cookies, as an agent's, and hands on those of each session."""
    cookies = []
    for count in (1, 10):
        answer = TestClient(app).post("/seed_session", json={"initial_count": count})
        cookies.append({"cookie": "; ".join(f"{name}={value}" for name, value in answer.cookies.items())})
    with TestClient(app) as client:
        for number, (headers, added) in enumerate([(cookies[0], 2), (cookies[1], 20), (cookies[0], 3)]):
            client.cookies.clear()
            sent = client.post("/increment_counter", json={"count": added}, headers=headers)
            assert sent.json() == {"success": True}, number
        for headers, count in zip(cookies, (6, 30), strict=True):
            client.cookies.clear()
            assert client.post("/get_counter_value", headers=headers).json() == {"count": count}
            client.cookies.clear()
            answer = client.post("/verify", json=asked(0, count), headers=headers)
            assert answer.json()["reward"] == 1.0


def test_a_second_seed_changes_nothing(app: FastAPI) -> None:
    client = TestClient(app)
    for count in (5, 100):
        assert client.post("/seed_session", json={"initial_count": count}).status_code == 200
    assert client.post("/get_counter_value").json() == {"count": 5}


def test_a_counter_may_be_verified_again(app: FastAPI) -> None:
    client = TestClient(app)
    client.post("/seed_session", json={"initial_count": 5})
    assert [reward(client, 5), reward(client, 5), reward(client, 6)] == [1.0, 1.0, 0.0]


def test_a_closed_session_is_gone(app: FastAPI) -> None:
    client = TestClient(app)
    client.post("/seed_session", json={"initial_count": 5})
    closing = {"resources_session_id": "s", "episode_id": {"rollout_id": "r"}}
    assert client.post("/close_session", json=closing).status_code == 200
    assert client.post("/verify", json=asked(0, 5)).status_code == 410


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/seed_session", {}),
        ("/seed_session", {"initial_count": None}),
        ("/seed_session", {"initial_count": "five"}),
        ("/seed_session", {"initial_count": 1.5}),
        ("/seed_session", {"initial_count": 10**20}),
        ("/increment_counter", {}),
        ("/increment_counter", {"count": [1]}),
        ("/increment_counter", {"count": 10**400}),
        ("/increment_counter", {"count": -(2**60)}),
    ],
)
def test_what_is_no_count_is_refused(app: FastAPI, path: str, body: dict[str, Any]) -> None:
    """A number of thousands of digits, added a few times, could not be answered any more."""
    client = TestClient(app, raise_server_exceptions=False)
    assert client.post(path, json=body).status_code == 422
    assert client.post("/get_counter_value").json() == {"count": 0}


def test_a_row_needs_both_counts(app: FastAPI) -> None:
    client = TestClient(app)
    for row in ({"initial_count": 1}, {"expected_count": 1}):
        assert client.post("/verify", json=verify_request(row, "x")).status_code == 422
    assert client.get("/reverify_mode").json() == "unsupported"


# --- episodes ---------------------------------------------------------------------------------------------------------


def episode(**task_data: Any) -> dict[str, Any]:
    return {
        "resources_session_id": "s1",
        "episode_id": {"rollout_id": "e1"},
        "task_id": {"taskset": "counters", "task_id": "t1"},
        "task_data": task_data,
    }


def test_an_episode_has_its_count_in_the_task(app: FastAPI) -> None:
    client = TestClient(app)
    for _ in range(2):
        answer = client.post("/seed_session", json=episode(initial_count=5, expected_count=6))
        assert answer.json()["resources_session_id"] == "s1"
        client.post("/increment_counter", json={"count": 1})
    assert client.post("/get_counter_value").json() == {"count": 7}, "the second seed changes nothing"
    assert client.post("/seed_session", json=episode()).status_code == 422


def test_the_session_contract_is_kept(app: FastAPI) -> None:
    seed = ResourcesSeedSessionRequest.model_validate(episode(initial_count=5))
    check_resources_session_contract(app, seed, keeps_state=True)


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows_and_their_rollouts() -> None:
    rows = check_example_rows(FOLDER)
    records = rows_of(FOLDER / "data" / "example_rollouts.jsonl")
    assert [record["reward"] for record in records] == [1.0, 1.0, 0.0, 1.0, 0.0]
    for row, record in zip(rows, records, strict=True):
        assert record["expected_count"] == row["expected_count"]
        assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == [
            "increment_counter",
            "get_counter_value",
        ]
