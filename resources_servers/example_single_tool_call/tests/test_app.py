from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.base_resources_server import (
    BaseVerifyRequest,
    ResourcesSeedSessionRequest,
    SessionExpiredError,
    SessionStore,
)
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing.session_conformance import check_resources_session_contract
from nemo_gym.verifier_fixture import exercise_verifier_fixture
from resources_servers.example_single_tool_call import sessions
from resources_servers.example_single_tool_call.app import (
    VERIFIER_FIXTURE,
    SimpleWeatherResourcesServer,
    SimpleWeatherResourcesServerConfig,
    WeatherVerifier,
)
from resources_servers.example_single_tool_call.sessions import Sessions
from resources_servers.example_single_tool_call.task_data import TaskData

HERE = Path(__file__).parent
CASES = [json.loads(line) for line in (HERE / "verifier_cases.jsonl").read_text().splitlines()]
ROWS = [json.loads(line) for line in (HERE.parent / "data" / "example.jsonl").read_text().splitlines()]


@pytest.fixture
def client() -> TestClient:
    config = SimpleWeatherResourcesServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="example_single_tool_call"
    )
    server = SimpleWeatherResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    return TestClient(server.setup_webserver(), raise_server_exceptions=False)


def test_it_is_always_cold(client: TestClient) -> None:
    answer = client.post("/get_weather", json={"city": "Oslo"})
    assert answer.json() == {"city": "Oslo", "weather_description": "The weather in Oslo is cold."}
    assert client.post("/get_weather", json={}).status_code == 422


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_verifier_cases(case: dict[str, Any]) -> None:
    if case["kind"] == "malformed":
        with pytest.raises(ValidationError, match=case["expected_error"]):
            BaseVerifyRequest.model_validate(case["request"])
        return
    verdict = await WeatherVerifier().verify(BaseVerifyRequest.model_validate(case["request"]))
    assert verdict.reward == case["expected_reward"]


def test_another_tool_earns_nothing_and_any_arguments_do(client: TestClient) -> None:
    body = json.loads(json.dumps(CASES[0]["request"]))
    body["response"]["output"][0] |= {"arguments": "not even JSON"}
    assert client.post("/verify", json=body).json()["reward"] == 1.0
    body["response"]["output"][0] |= {"name": "get_time"}
    assert client.post("/verify", json=body).json()["reward"] == 0.0


# --- sessions ---------------------------------------------------------------------------------------------------------


def seed(session: str = "s1", episode: str = "e1", task: str = "t1") -> dict[str, Any]:
    return {
        "resources_session_id": session,
        "episode_id": {"rollout_id": episode, "attempt": 0},
        "task_id": {"taskset": "weather", "task_id": task},
        "task_data": {},
    }


def close(session: str = "s1", episode: str = "e1") -> dict[str, Any]:
    return {"resources_session_id": session, "episode_id": {"rollout_id": episode, "attempt": 0}}


def test_a_session_is_seeded_and_closed_as_often_as_asked(client: TestClient) -> None:
    for _ in range(2):
        assert client.post("/seed_session", json=seed()).json()["resources_session_id"] == "s1"
    for _ in range(2):
        assert client.post("/close_session", json=close()).json() == {"resources_session_id": "s1"}


@pytest.mark.parametrize("other", [seed(episode="e2"), seed(task="t2")])
def test_an_id_belongs_to_one_episode_and_task(client: TestClient, other: dict[str, Any]) -> None:
    client.post("/seed_session", json=seed())
    assert client.post("/seed_session", json=other).status_code == 500
    assert client.post("/seed_session", json=seed("s2", "e2", "t2")).status_code == 200


@pytest.mark.parametrize("seeded", [True, False])
def test_a_closed_session_stays_closed(client: TestClient, seeded: bool) -> None:
    if seeded:
        client.post("/seed_session", json=seed())
    assert client.post("/close_session", json=close()).status_code == 200
    assert client.post("/seed_session", json=seed()).status_code == 500
    assert client.post("/close_session", json=close(episode="e2")).status_code == 500


def test_an_open_session_is_closed_by_its_own_episode_only(client: TestClient) -> None:
    client.post("/seed_session", json=seed())
    assert client.post("/close_session", json=close(episode="e2")).status_code == 500
    assert client.post("/seed_session", json=seed()).status_code == 200


@pytest.mark.parametrize("body", [{}, ROWS[0]])
def test_what_is_no_episode_keeps_no_state(client: TestClient, body: dict[str, Any]) -> None:
    for _ in range(2):
        assert client.post("/seed_session", json=body).json() == {}


def test_closed_sessions_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "REMEMBERED", 2)
    book, episode, task = Sessions(), EpisodeId(rollout_id="e"), TaskId(taskset="w", task_id="t")
    for name in ("a", "b", "c"):
        book.open(name, episode, task)
        book.close(name, episode)
    another = EpisodeId(rollout_id="another")
    book.close("a", another)
    with pytest.raises(ValueError, match="another episode"):
        book.close("c", another)
    with pytest.raises(ValueError, match="is closed"):
        book.open("c", episode, task)


def test_an_open_session_expires() -> None:
    book, episode, task = Sessions(), EpisodeId(rollout_id="e"), TaskId(taskset="w", task_id="t")
    book._open = SessionStore(max_sessions=1)
    book.open("a", episode, task)
    book.open("b", episode, task)
    with pytest.raises(SessionExpiredError):
        book.open("a", episode, task)
    book.close("a", episode)


async def test_the_verifier_fixture() -> None:
    results = await exercise_verifier_fixture(VERIFIER_FIXTURE, reward_range=(0.0, 1.0), determinism="unknown")
    assert [(result.kind, result.observed_rewards) for result in results] == [
        ("full_reward", (1.0,)),
        ("zero_reward", (0.0,)),
        ("malformed", ()),
    ]


def test_the_session_contract_is_kept(client: TestClient) -> None:
    check_resources_session_contract(
        client.app,  # type: ignore[arg-type]
        ResourcesSeedSessionRequest.model_validate(seed()),
        keeps_state=True,
    )


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows_offer_the_tool_in_strict_mode() -> None:
    assert len(ROWS) == 5
    for row in ROWS:
        assert list(row) == ["responses_create_params"]
        assert [message["role"] for message in row["responses_create_params"]["input"]] == ["developer", "user"]
        (tool,) = row["responses_create_params"]["tools"]
        assert (tool["type"], tool["name"], tool["strict"]) == ("function", "get_weather", True)
        BaseVerifyRequest.model_validate({**row, "response": CASES[0]["request"]["response"]})
        TaskData.model_validate({})


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    records = [json.loads(line) for line in (HERE.parent / "data" / "example_rollouts.jsonl").read_text().splitlines()]
    assert len(records) == 5
    for record in records:
        verdict = await WeatherVerifier().verify(BaseVerifyRequest.model_validate(record))
        assert verdict.reward == record["reward"]
