from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
    normalize_tool_name,
)
from nemo_gym.config_types import AggregateMetricsRequest
from nemo_gym.server_utils import SESSION_ID_KEY
from tests.unit.serve.toys import ROW, VERIFY, ToyResources, mock_client, resources_config, toy_resources

EPISODE = {"episode_id": {"rollout_id": "r1"}, "task_id": {"taskset": "t", "task_id": "1"}}
TYPED_SEED: dict[str, Any] = {"resources_session_id": "s1", **EPISODE, "task_data": {"a": [1]}}
CLOSE: dict[str, Any] = {"resources_session_id": "s1", "episode_id": EPISODE["episode_id"]}


class CounterConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.STATELESS

    step: int = 1


class Increment(BaseModel):
    by: int


class SeedRequest(BaseSeedSessionRequest):
    model_config = {"extra": "allow"}

    start: int = 0


class Verdict(BaseVerifyResponse):
    total: int


class VerifyWithAnswer(BaseVerifyRequest):
    model_config = {"extra": "allow"}

    expected: int


class Counter(SimpleResourcesServer):
    """A component as they are written: own config, own bodies, state by session, a private attribute."""

    config: CounterConfig
    _totals: dict[str, int] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/increment")(self.increment)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:  # type: ignore[override]
        self._totals[request.session[SESSION_ID_KEY]] = body.start
        return BaseSeedSessionResponse()

    async def increment(self, request: Request, body: Increment) -> dict[str, int]:
        self._totals[request.session[SESSION_ID_KEY]] += body.by * self.config.step
        return {"total": self._totals[request.session[SESSION_ID_KEY]]}

    async def verify(self, request: Request, body: VerifyWithAnswer) -> Verdict:  # type: ignore[override]
        total = self._totals[request.session[SESSION_ID_KEY]]
        return Verdict(**body.model_dump(), reward=float(total == body.expected), total=total)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return {"tasks_seen": len(tasks)}


@pytest.fixture
def counter() -> TestClient:
    config = CounterConfig(host="0.0.0.0", port=8080, entrypoint="", name="counter", step=2)
    return TestClient(Counter(config=config, server_client=mock_client()).setup_webserver())


def test_a_component_keeps_state_by_session(counter: TestClient) -> None:
    assert counter.post("/seed_session", json={**ROW, "start": 1}).json() == {}
    assert counter.post("/increment", json={"by": 3}).json() == {"total": 7}
    verdict = counter.post("/verify", json={**VERIFY, "expected": 7, "extra": "kept out"}).json()
    assert (verdict["reward"], verdict["total"], verdict["response"]["id"]) == (1.0, 7, "resp_1")
    assert "expected" not in verdict and "_ng_rollout_id" not in verdict


def test_sessions_are_apart(counter: TestClient) -> None:
    other = TestClient(counter.app)
    counter.post("/seed_session", json={"start": 1})
    other.post("/seed_session", json={"start": 5})
    assert counter.post("/increment", json={"by": 0}).json() == {"total": 1}
    assert other.post("/increment", json={"by": 0}).json() == {"total": 5}


def test_paths_may_carry_a_rollout(counter: TestClient) -> None:
    counter.post("/ng-rollout/3-1/seed_session", json={})
    assert counter.post("/ng-rollout/3-1/increment", json={"by": 1}).json() == {"total": 2}


def test_metrics_use_the_servers_hooks(counter: TestClient) -> None:
    responses = [{"_ng_task_index": task, "_ng_rollout_index": 0, "reward": float(task)} for task in range(2)]
    metrics = counter.post("/aggregate_metrics", json={"verify_responses": responses}).json()
    assert metrics["agent_metrics"]["tasks_seen"] == 2
    assert metrics["key_metrics"]["mean/reward"] == 0.5


async def test_metrics_without_hooks() -> None:
    responses = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
    metrics = await toy_resources().aggregate_metrics(AggregateMetricsRequest(verify_responses=responses))
    assert metrics.key_metrics["mean/reward"] == 1.0


def test_default_sessions_echo_typed_requests_and_accept_any_row() -> None:
    client = TestClient(toy_resources().setup_webserver())
    assert client.post("/seed_session", json=ROW).json() == {}
    assert client.post("/seed_session", json={}).json() == {}
    typed = client.post("/seed_session", json=TYPED_SEED).json()
    assert typed == {"resources_session_id": "s1", "resources_tools": None, "sandbox_access": None}
    for _ in range(2):
        assert client.post("/close_session", json=CLOSE).json() == {"resources_session_id": "s1"}
    assert client.post("/close_session", json={**CLOSE, "more": 1}).status_code == 422


class ModeOnServer(ToyResources):
    REVERIFY_MODE = ReverifyMode.UNSUPPORTED


def test_the_reverify_mode_may_stand_in_config_or_server(counter: TestClient) -> None:
    assert counter.get("/reverify_mode").json() == "stateless"
    assert TestClient(toy_resources().setup_webserver()).get("/reverify_mode").json() == "unknown"
    server = ModeOnServer(config=resources_config(), server_client=mock_client())
    assert TestClient(server.setup_webserver()).get("/reverify_mode").json() == "unsupported"


def test_the_rollout_id_of_a_row_is_read_and_not_written() -> None:
    body = BaseRunRequest.model_validate({**ROW, "_ng_rollout_id": "x"})
    assert body.capture_rollout_id == "x"
    assert set(body.model_dump(exclude_unset=True)) == {"responses_create_params"}
    assert BaseRunRequest.model_validate({**ROW, "capture_rollout_id": "y"}).capture_rollout_id == "y"


def test_an_unregistered_failure_kind_is_kept() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = BaseVerifyResponse.model_validate({**VERIFY, "reward": 0, "failure_kind": "of_my_own"})
    assert verdict.failure_kind == "of_my_own"


NAMES = [
    ("add", None, "add"),
    ("mcp__toy__add", None, "add"),
    ("mcp__toy__add__two", None, "add__two"),
    ("mcp__toy__add", "toy", "add"),
    ("mcp__other__add", "toy", "mcp__other__add"),
    ("mcp__lonely", None, "mcp__lonely"),
    ("xmcp__toy__add", None, "xmcp__toy__add"),
]


@pytest.mark.parametrize(("name", "server", "normal"), NAMES)
def test_tool_names_lose_the_prefix_of_mcp_clients(name: str, server: str | None, normal: str) -> None:
    assert normalize_tool_name(name, server) == normal


def test_the_servers_own_prefix_is_its_name() -> None:
    assert toy_resources().normalize_tool_name("mcp__toy__add") == "add"


def test_configs_and_bodies_survive_pickling() -> None:
    config = CounterConfig(host="h", port=1, entrypoint="e", name="n")
    assert pickle.loads(pickle.dumps(config)) == config


def test_verify_must_be_written() -> None:
    class Lazy(SimpleResourcesServer):
        pass

    with pytest.raises(TypeError, match="verify"):
        Lazy(config=resources_config(), server_client=mock_client())  # type: ignore[abstract]


def test_session_middleware_is_installed_once() -> None:
    server = toy_resources()
    app = server.setup_webserver()
    before = len(app.user_middleware)
    server.setup_session_middleware(app)
    assert len(app.user_middleware) == before
    assert server.get_session_middleware_key() == "ToyResources___toy"
    assert "ToyResources___toy" in TestClient(app).post("/seed_session", json={}).cookies


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None, "high"])
def test_a_reward_that_is_no_number_is_no_verdict(reward: Any) -> None:
    class Unsure(ToyResources):
        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            return BaseVerifyResponse(**body.model_dump(), reward=reward)

    server = Unsure(config=resources_config(), server_client=mock_client())
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    answer = TestClient(app, raise_server_exceptions=False).post("/verify", json=VERIFY)
    assert answer.status_code == 500
    assert "reward" in answer.json()
