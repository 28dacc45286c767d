from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import (
    BaseVerifyRequest,
    BaseVerifyResponse,
    SessionExpiredError,
    SessionStore,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError
from nemo_gym.serve import session_store
from nemo_gym.serve.failures import Cause
from nemo_gym.server_utils import SESSION_ID_KEY
from tests.unit.serve.toys import RESPONSE, ROW, mock_client, resources_config


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_is_a_dict_while_sessions_live(clock: Clock) -> None:
    store: SessionStore[int] = SessionStore(clock=clock)
    assert "a" not in store and store.get("a") is None and store.setdefault("a", 1) == 1
    store["a"] += 1
    assert (store["a"], len(store), list(store)) == (2, 1, ["a"])
    with pytest.raises(KeyError):
        store["b"]


def test_an_idle_session_is_gone_and_says_so(clock: Clock) -> None:
    store: SessionStore[int] = SessionStore(clock=clock)
    store["used"], store["idle"] = 1, 2
    clock.now += 23 * 3600
    assert store["used"] == 1
    clock.now += 3600
    assert store["used"] == 1 and len(store) == 1
    with pytest.raises(SessionExpiredError, match=r"session_expired: the session 'idle' was not used for 24 hours"):
        store["idle"]
    with pytest.raises(SessionExpiredError):
        store.setdefault("idle", 0)
    assert store.find("idle") is None
    store["idle"] = 3
    assert store["idle"] == 3


def test_the_longest_unused_goes_when_there_are_too_many(clock: Clock) -> None:
    store: SessionStore[int] = SessionStore(max_sessions=2, clock=clock)
    store["a"], store["b"] = 1, 2
    assert store["a"] == 1
    store["c"] = 3
    assert sorted(store) == ["a", "c"]
    with pytest.raises(SessionExpiredError, match="longest unused of more than 2"):
        store["b"]


def test_closing_is_idempotent_and_releases_once(clock: Clock) -> None:
    released: list[int] = []
    store: SessionStore[int] = SessionStore(release=released.append, clock=clock)
    store["a"] = 1
    assert [store.close("a"), store.close("a"), store.close("never")] == [True, False, False]
    assert released == [1]
    with pytest.raises(SessionExpiredError, match="was closed"):
        store["a"]


def test_a_close_that_fails_can_be_repeated_and_an_expiry_that_fails_cannot(clock: Clock) -> None:
    def refuse(state: int) -> None:
        raise OSError(f"busy {state}")

    store: SessionStore[int] = SessionStore(release=refuse, max_sessions=1, clock=clock)
    store["a"] = 1
    for _ in range(2):
        with pytest.raises(OSError, match="busy 1"):
            store.close("a")
    store["b"] = 2
    assert list(store) == ["b"]


def test_what_ended_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_store, "REMEMBERED_ENDS", 1)
    store: SessionStore[int] = SessionStore()
    for name in ("a", "b"):
        store[name] = 1
        del store[name]
    assert store.get("a") is None
    with pytest.raises(SessionExpiredError):
        store["b"]


# --- in a server ------------------------------------------------------------------------------------------------------


class Counter(SimpleResourcesServer):
    """Counts per session; verifying fails as the row says."""

    _counts: SessionStore[int] = PrivateAttr(default_factory=SessionStore)
    _kept: SessionStore[int] = PrivateAttr(default_factory=lambda: SessionStore(keep_after_verify=True))

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/count")(self.count)
        return app

    async def count(self, request: Request, body: dict[str, Any]) -> int:
        session_id = request.session[SESSION_ID_KEY]
        for store in (self._counts, self._kept):
            store[session_id] = store.setdefault(session_id, 0) + 1
        return self._counts[session_id]

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        failure = (body.response.metadata or {}).get("fail")
        if failure == "judge":
            raise JudgeError("no judge")
        if failure:
            raise LookupError(failure)
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


@pytest.fixture
def server() -> Counter:
    return Counter(config=resources_config(), server_client=mock_client())


@pytest.fixture
def client(server: Counter) -> Iterator[TestClient]:
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    with TestClient(app) as client:
        client.post("/count", json={})
        yield client


def verify(client: TestClient, **metadata: str) -> Any:
    return client.post("/verify", json={**ROW, "response": {**RESPONSE, "metadata": metadata}})


CLOSE = {"resources_session_id": "s", "episode_id": {"rollout_id": "r"}}


def test_a_verified_session_is_closed_unless_it_is_kept(server: Counter, client: TestClient) -> None:
    assert verify(client).status_code == 200
    assert (len(server._counts), len(server._kept)) == (0, 1)
    answer = client.post("/count", json={})
    assert answer.status_code == 410 and "session_expired" in answer.json()["detail"]
    cause = Cause.of_headers(answer.headers)
    assert cause is not None and (cause.kind, cause.server) == ("session_expired", "Counter___toy")
    assert verify(client).status_code == 200


def test_another_session_stays(server: Counter, client: TestClient) -> None:
    other = TestClient(client.app)
    other.post("/count", json={})
    verify(client)
    assert other.post("/count", json={}).json() == 2


def test_a_session_whose_judge_failed_is_over_and_one_whose_verifier_failed_is_not(
    server: Counter, client: TestClient
) -> None:
    assert verify(client, fail="verifier").status_code == 500
    assert len(server._counts) == 1
    assert verify(client, fail="judge").json()["failure_kind"] == "judge_failed"
    assert len(server._counts) == 0


def test_closing_the_session_closes_what_is_kept_too(server: Counter, client: TestClient) -> None:
    for _ in range(2):
        assert client.post("/close_session", json=CLOSE).status_code == 200
    assert (len(server._counts), len(server._kept)) == (0, 0)


def test_a_release_that_fails_costs_no_verdict(server: Counter, client: TestClient) -> None:
    def refuse(state: int) -> None:
        raise OSError("busy")

    server._counts._release = refuse
    assert verify(client).json()["reward"] == 1.0
    assert client.post("/close_session", json=CLOSE).status_code == 500
