from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import HTTPException, Request, Response
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym import base_responses_api_agent
from nemo_gym.base_responses_api_agent import (
    AGENT_SESSION_COOKIE_KEY,
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSessionSetupError,
    AgentSessionState,
    BaseResponsesAPIAgentConfig,
    BaseRunRequest,
    BaseVerifyResponse,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.serve import agent_sessions
from nemo_gym.serve.agent_sessions import AgentSessions
from nemo_gym.serve.failures import Cause
from tests.unit.serve.toys import RESPONSE, ROW, client_of, config_of, mock_client

SEED: dict[str, Any] = {
    "agent_session_id": "s1",
    "episode_id": {"rollout_id": "r1"},
    "task_id": {"taskset": "t", "task_id": "1"},
}
CLOSE: dict[str, Any] = {"agent_session_id": "s1", "episode_id": SEED["episode_id"]}


class RunRequest(BaseRunRequest):
    model_config = {"extra": "allow"}


class ToyAgent(SimpleResponsesAPIAgent):
    """Reports what it was called with, in the metadata of its response."""

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        response.set_cookie("from", "agent")
        seen = {"path": self.url_path_for_request("/v1/responses", request)}
        return NeMoGymResponse.model_validate({**RESPONSE, "metadata": seen})

    async def run(self, body: RunRequest = Body()) -> BaseVerifyResponse:  # type: ignore[override]
        seen = {"current": str(current_rollout_id()), "path": self.url_path_for_run("/v1/responses", body)}
        response = NeMoGymResponse.model_validate({**RESPONSE, "metadata": seen})
        return BaseVerifyResponse(responses_create_params=body.responses_create_params, response=response, reward=1.0)


class SessionAgent(ToyAgent):
    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> AgentSessionState:
        return AgentSessionState(request=body)

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        return AgentCloseSessionResponse(agent_session_id=state.request.agent_session_id, resources_cookies={"c": "1"})


def agent_of(cls: type[SimpleResponsesAPIAgent] = ToyAgent, config: Any = None, **fields: Any) -> Any:
    settings = {"host": "127.0.0.1", "port": 1, "entrypoint": "", "name": "agent", **fields}
    return cls(config=BaseResponsesAPIAgentConfig.model_validate(settings), server_client=mock_client(config))


def web(agent: SimpleResponsesAPIAgent) -> TestClient:
    return TestClient(agent.setup_webserver())


# --- routes and correlation -------------------------------------------------------------------------------------------

OBSERVED = OmegaConf.create({"observability_enabled": True})
TOKENS = OmegaConf.create({"token_id_capture": {"enabled": True}})
ALL_TOKENS = OmegaConf.create({"token_id_capture": {"enabled": True, "all_agents": True}})
PREFIXES = ["", "/ng-rollout/7-0", "/ng-rollout/7-0/training-token-capture"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_responses_are_served_with_and_without_a_rollout(prefix: str) -> None:
    reply = web(agent_of()).post(f"{prefix}/v1/responses", json={"input": "hi"})
    assert reply.status_code == 200 and reply.cookies["from"] == "agent"
    assert reply.json()["metadata"]["path"] == f"{prefix}/v1/responses"


CORRELATION: list[tuple[Any, dict[str, Any], str | None, str]] = [
    (None, {}, None, ""),
    (OmegaConf.create({}), {}, None, ""),
    ("no mapping", {}, None, ""),
    ({"observability_enabled": True}, {}, "7-0", "/ng-rollout/7-0"),
    (OBSERVED, {}, "7-0", "/ng-rollout/7-0"),
    (TOKENS, {}, None, ""),
    (TOKENS, {"token_id_capture": True}, "7-0", "/ng-rollout/7-0/training-token-capture"),
    (ALL_TOKENS, {}, "7-0", "/ng-rollout/7-0/training-token-capture"),
    (OmegaConf.create({"token_id_capture": {"all_agents": True}}), {}, None, ""),
]


@pytest.mark.parametrize(("config", "fields", "rollout_id", "prefix"), CORRELATION)
def test_rollouts_are_named_only_where_something_is_recorded(
    config: Any, fields: dict[str, Any], rollout_id: str | None, prefix: str
) -> None:
    agent = agent_of(config=config, **fields)
    body = {**ROW, "_ng_task_index": 7, "_ng_rollout_index": 0}
    seen = web(agent).post("/run", json=body).json()["response"]["metadata"]
    assert seen == {"current": str(rollout_id), "path": f"{prefix}/v1/responses"}
    assert agent.rollout_id_from_run(body) == rollout_id
    assert agent.base_url_for_run("http://h:1/", body) == f"http://h:1{prefix}"
    assert current_rollout_id() is None


@pytest.mark.parametrize(("observed", "rollout_id"), [(True, "7-0"), (False, None)])
def test_a_real_clients_config_is_read(observed: bool, rollout_id: str | None) -> None:
    client = client_of(config_of(observability_enabled=observed))
    agent = ToyAgent(config=agent_of().config, server_client=client)
    for _ in range(2):
        assert agent.rollout_id_from_run({"_ng_task_index": 7, "_ng_rollout_index": 0}) == rollout_id
        assert agent._capture_correlation_enabled() is observed


def test_other_requests_have_no_prefix() -> None:
    agent = agent_of(config=OBSERVED)
    assert agent.url_path_for_request("/x", None) == "/x"
    assert agent.rollout_id_from_run(None) is None and agent.rollout_id_from_run("text") is None


def test_model_addresses_for_foreign_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = ToyAgent(
        config=agent_of().config, server_client=client_of(config_of(("policy", "responses_api_models", 5)))
    )
    assert agent.resolve_model_base_url("policy") == "http://127.0.0.1:5/v1"
    assert agent.resolve_model_base_url("policy", "7-0") == "http://127.0.0.1:5/ng-rollout/7-0/v1"
    patched = OmegaConf.create({"host": "h", "port": 6})
    monkeypatch.setattr(base_responses_api_agent, "get_first_server_config_dict", lambda *_: patched)
    assert agent.resolve_model_base_url("policy") == "http://h:6/v1"


def test_skipped_verification_gives_no_metrics() -> None:
    with pytest.warns(RuntimeWarning, match="skip_verification"):
        reply = web(agent_of(skip_verification=True)).post("/aggregate_metrics", json={"verify_responses": []})
    assert reply.json()["agent_metrics"] == {}
    responses = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
    metrics = web(agent_of()).post("/aggregate_metrics", json={"verify_responses": responses}).json()
    assert metrics["key_metrics"]["mean/reward"] == 1.0


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_the_retry_window_is_positive_and_finite(seconds: float) -> None:
    with pytest.raises(ValidationError):
        agent_of(session_close_retry_window_seconds=seconds)


# --- sessions ---------------------------------------------------------------------------------------------------------

ACCESS = {"kind": "direct_http", "name": "tools", "required": True, "base_url": "http://h:1"}


def seed(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/agent_sessions", json={**SEED, **changes})


def close(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/agent_sessions/close", json={**CLOSE, **changes})


@pytest.fixture
def agent() -> Any:
    return agent_of(SessionAgent)


@pytest.fixture
def client(agent: Any) -> TestClient:
    return web(agent)


def test_a_session_opens_and_closes_once_however_often_asked(agent: Any, client: TestClient) -> None:
    for _ in range(2):
        assert seed(client).json() == {"agent_session_id": "s1"}
    assert agent._require_agent_session("s1").request.agent_session_id == "s1"
    expected = {"agent_session_id": "s1", "agent_observations": None, "resources_cookies": {"c": "1"}}
    for _ in range(2):
        assert close(client).json() == expected
    assert seed(client).status_code == 409
    with pytest.raises(HTTPException, match="409"):
        agent._require_agent_session("s1")


def test_a_session_of_an_earlier_process_is_lost_and_says_so(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B26: neither an empty receipt nor a conflict; the rollout is run again."""
    cookie = seed(client).cookies["SessionAgent___agent"]
    monkeypatch.setenv(GENERATION_ENV, "1")
    successor = agent_of(SessionAgent)
    after = web(successor)
    after.cookies.set("SessionAgent___agent", cookie)
    for answer in (seed(after), close(after)):
        assert answer.status_code == 410
        assert json.loads(answer.headers["X-NeMo-Gym-Cause"])["kind"] == "session_lost"
    with pytest.raises(HTTPException, match="session_lost") as raised:
        successor._require_agent_session("s1")
    assert raised.value.status_code == 410
    assert seed(web(successor)).status_code == 200


def test_an_agent_without_sessions_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GENERATION_ENV, "1")
    assert not agent_of()._holds_sessions() and agent_of(SessionAgent)._holds_sessions()


CONFLICTS: list[Callable[[TestClient], Any]] = [
    lambda client: seed(client, task_id={"taskset": "t", "task_id": "2"}),
    lambda client: seed(client, agent_session_id="s2"),
    lambda client: close(client, agent_session_id="s2"),
    lambda client: close(client, episode_id={"rollout_id": "r2"}),
]


@pytest.mark.parametrize("ask", CONFLICTS)
def test_contradictions_are_conflicts(client: TestClient, ask: Callable[[TestClient], Any]) -> None:
    seed(client)
    assert ask(client).status_code == 409
    assert close(client).status_code == 200


def test_a_close_of_what_never_was_blocks_a_late_seed(agent: Any) -> None:
    assert close(web(agent)).json()["resources_cookies"] is None
    assert seed(web(agent)).status_code == 409
    assert close(web(agent), episode_id={"rollout_id": "r2"}).status_code == 409


def test_expired_receipts_are_forgotten(agent: Any, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(client)
    close(client)
    assert list(agent._closed_session_records) == ["s1"] == list(agent._session_records)
    later = agent_sessions.time.monotonic() + 301  # type: ignore[attr-defined]
    monkeypatch.setattr(agent_sessions.time, "monotonic", lambda: later)  # type: ignore[attr-defined]
    assert close(client).status_code == 409
    assert seed(client).status_code == 409
    assert seed(web(agent), agent_session_id="s3").status_code == 200
    assert list(agent._session_records) == ["s3"] and not agent._closed_session_records


class Releasing(SessionAgent):
    """Remembers what it released; the sessions of some episodes can't be."""

    released: list[str] = []

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        self.released.append(state.request.agent_session_id)
        if state.request.agent_session_id == "s2":
            raise LookupError("gone already")
        return await super()._close_agent_session_state(state)


def test_sessions_nobody_uses_for_a_day_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of(Releasing, released=[])
    start, clock = agent_sessions.time.monotonic(), agent_sessions.time  # type: ignore[attr-defined]
    with web(agent) as client:
        for name, hours in (("s1", 0), ("s2", 1), ("s3", 2)):
            monkeypatch.setattr(clock, "monotonic", lambda hours=hours: start + hours * 3600)
            assert client.post("/v1/agent_sessions", json={**SEED, "agent_session_id": name}).status_code == 200
            client.cookies.clear()
        monkeypatch.setattr(clock, "monotonic", lambda: start + 20 * 3600)
        agent._require_agent_session("s3")
        monkeypatch.setattr(clock, "monotonic", lambda: start + 26 * 3600)
        assert client.post("/v1/agent_sessions", json={**SEED, "agent_session_id": "s4"}).status_code == 200
        assert list(agent._session_records) == ["s3", "s4"]
    assert agent.released == ["s1", "s2"]
    with pytest.raises(HTTPException, match="409"):
        agent._require_agent_session("s1")


class FailingOnce(SessionAgent):
    fail_with: Any = None

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> AgentSessionState:
        if isinstance(self.fail_with, AgentSessionSetupError):
            raise AgentSessionSetupError(AgentSessionState(request=body), error=self.fail_with.error)
        if self.fail_with:
            raise self.fail_with
        return await super()._seed_agent_session_state(body)

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        if self.fail_with:
            raise self.fail_with
        return await super()._close_agent_session_state(state)


def test_a_failed_seed_leaves_nothing() -> None:
    agent = agent_of(FailingOnce)
    client = web(agent)
    agent.fail_with = LookupError("first")
    with pytest.raises(LookupError):
        seed(client)
    assert not agent._session_records
    agent.fail_with = None
    assert seed(client).status_code == 200


def test_a_half_seeded_session_must_be_closed() -> None:
    agent = agent_of(FailingOnce)
    client = web(agent)
    agent.fail_with = AgentSessionSetupError(None, error=LookupError("half"))  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="half"):
        seed(client)
    agent.fail_with = None
    assert seed(client).status_code == 409
    assert close(client).json()["resources_cookies"] == {"c": "1"}


def test_a_failed_close_can_be_tried_again() -> None:
    agent = agent_of(FailingOnce)
    client = web(agent)
    seed(client)
    agent.fail_with = LookupError("busy")
    with pytest.raises(LookupError):
        close(client)
    agent.fail_with = None
    assert seed(client).status_code == 409
    with pytest.raises(HTTPException):
        agent._require_agent_session("s1")
    assert close(client).status_code == 200


def test_agents_without_sessions_say_so() -> None:
    client = web(agent_of())
    with pytest.raises(NotImplementedError):
        seed(client)
    with pytest.raises(NotImplementedError):
        close(client)


def test_several_workers_have_no_sessions() -> None:
    with pytest.raises(ValueError, match="num_workers"):
        seed(web(agent_of(SessionAgent, num_workers=2)))


@pytest.mark.parametrize("marker", ["", 7, None])
def test_a_marker_that_is_no_id_is_a_conflict(agent: Any, marker: Any) -> None:
    request = Request({"type": "http", "session": {AGENT_SESSION_COOKIE_KEY: marker}})
    with pytest.raises(HTTPException) as caught:
        agent._agent_session_id_from_request(request)
    assert caught.value.status_code == 409
    assert agent._agent_session_id_from_request(None) is None


async def test_seeds_at_the_same_time_open_one_session(agent: Any) -> None:
    sessions: AgentSessions = agent._sessions()
    opened = 0

    async def slow(body: AgentSeedSessionRequest) -> AgentSessionState:
        nonlocal opened
        opened += 1
        await asyncio.sleep(0)
        return AgentSessionState(request=body)

    body = AgentSeedSessionRequest.model_validate(SEED)
    await asyncio.gather(*(sessions.seed(None, body, slow) for _ in range(5)))
    assert opened == 1


async def test_who_waits_for_a_record_that_goes_gets_a_new_one(agent: Any) -> None:
    sessions: AgentSessions = agent._sessions()
    begun, finish = asyncio.Event(), asyncio.Event()

    async def failing(body: AgentSeedSessionRequest) -> AgentSessionState:
        begun.set()
        await finish.wait()
        raise LookupError

    body = AgentSeedSessionRequest.model_validate(SEED)
    first = asyncio.create_task(sessions.seed(None, body, failing))
    await begun.wait()
    second = asyncio.create_task(sessions.seed(None, body, agent._seed_agent_session_state))
    await asyncio.sleep(0)
    finish.set()
    with pytest.raises(LookupError):
        await first
    assert (await second).agent_session_id == "s1"
    assert sessions.require("s1").request == body


async def test_the_hook_may_change_its_copy_of_the_answer(agent: Any) -> None:
    request = AgentCloseSessionRequest.model_validate(CLOSE)
    first = await agent._sessions().close(None, request, agent._close_agent_session_state)
    first.resources_cookies = {"changed": "1"}
    assert (await agent._sessions().close(None, request, agent._close_agent_session_state)).resources_cookies is None


def test_session_accesses_come_before_configured_ones_of_the_same_name() -> None:
    configured = [ACCESS, {**ACCESS, "name": "more"}]
    agent = agent_of(tool_accesses=configured)
    request = AgentSeedSessionRequest.model_validate(
        {**SEED, "tool_accesses": [{**ACCESS, "required": False}, {**ACCESS, "name": "new"}]}
    )
    accesses = agent.effective_tool_accesses(request)
    assert [(access.name, access.required) for access in accesses] == [("tools", False), ("more", True), ("new", True)]


@pytest.mark.parametrize(
    "build", [lambda: agent_of(tool_accesses=[ACCESS, ACCESS]), lambda: seed_request(ACCESS, ACCESS)]
)
def test_access_names_are_unique(build: Callable[[], Any]) -> None:
    with pytest.raises(ValidationError, match="tools"):
        build()


def seed_request(*accesses: Any) -> AgentSeedSessionRequest:
    return AgentSeedSessionRequest.model_validate({**SEED, "tool_accesses": list(accesses)})


async def test_the_longest_unused_sessions_are_released_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted as expired sessions, not begun anew in silence."""
    monkeypatch.setattr(agent_sessions, "MAX_OPEN_SESSIONS", 2)
    released: list[str] = []

    async def release(state: AgentSessionState) -> AgentCloseSessionResponse:
        released.append(state.request.agent_session_id)
        return AgentCloseSessionResponse(agent_session_id=released[-1])

    async def seed(body: AgentSeedSessionRequest) -> AgentSessionState:
        return AgentSessionState(request=body)

    sessions = AgentSessions({}, OrderedDict(), 300, release)
    for number in range(4):
        await sessions.seed(
            None, AgentSeedSessionRequest.model_validate({**SEED, "agent_session_id": f"s{number}"}), seed
        )
        if number:
            sessions.require("s1")
    await sessions.seed(None, AgentSeedSessionRequest.model_validate({**SEED, "agent_session_id": "s4"}), seed)
    await asyncio.sleep(0)
    assert released == ["s0", "s2"] and set(sessions.records) == {"s1", "s3", "s4"}
    with pytest.raises(HTTPException) as caught:
        sessions.require("s0")
    cause = Cause.of_headers(caught.value.headers)
    assert caught.value.status_code == 409 and cause is not None and cause.kind == "session_expired"


# --- what ids may be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/agent_sessions", "/v1/agent_sessions/close"])
def test_ids_of_sessions_have_a_length(path: str) -> None:
    body = SEED if path.endswith("sessions") else CLOSE
    client = web(agent_of(SessionAgent))
    assert client.post(path, json={**body, "agent_session_id": "s" * 201}).status_code == 422
    long = {"rollout_id": "r" * 181}
    assert client.post(path, json={**body, "episode_id": long}).status_code == 422
    assert client.post(path, json={**body, "agent_session_id": "s" * 200}).status_code == 200


@pytest.mark.parametrize("prefix", ["/ng-rollout/..", "/ng-rollout/.x", "/ng-rollout/a b", f"/ng-rollout/{'a' * 201}"])
def test_a_prefix_with_what_is_no_rollout_is_refused(prefix: str) -> None:
    client = TestClient(agent_of().setup_webserver())
    for path in ("/v1/responses", "/training-token-capture/v1/responses"):
        reply = client.post(f"{prefix.replace('..', '%2e%2e')}{path}", json={"input": "hi"})
        assert reply.status_code == 400 and "names no rollout" in reply.json()["detail"]


def test_a_row_that_names_no_rollout_is_refused() -> None:
    reply = web(agent_of(config=OBSERVED)).post("/run", json={**ROW, "_ng_rollout_id": "../x"})
    assert reply.status_code == 422 and "_ng_rollout_id is '../x'" in reply.json()["detail"]
