"""What each part of a rollout may take, and who is named when it takes longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import BaseSeedSessionResponse, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.config.errors import ConfigError
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.schema.failure_kinds import is_registered
from nemo_gym.serve import local
from nemo_gym.serve.deadline import DeadlineExceededError, deadline
from nemo_gym.serve.failures import Cause
from nemo_gym.serve.idempotency import IdempotencyMiddleware
from nemo_gym.serve.retries import transport_failure_kind
from nemo_gym.serve.stages import STAGES, StageTimeoutError, stage_of, stage_seconds
from nemo_gym.server_utils import request
from tests.unit.serve.test_deadline import assembled
from tests.unit.serve.toys import (
    VERIFY,
    ToyResources,
    client_of,
    config_of,
    mock_client,
    raw_server,
    read_request,
    resources_config,
    serving,
)

pytestmark = pytest.mark.usefixtures("fresh_client")


@pytest.mark.parametrize(
    ("server_type", "path", "key"),
    [
        ("resources_servers", "/seed_session", "seed_timeout_s"),
        ("resources_servers", "/ng-rollout/1-0/verify", "verify_timeout_s"),
        ("resources_servers", "/any_tool", "tool_call_timeout_s"),
        ("responses_api_models", "/ng-rollout/1-0/v1/responses", "model_call_timeout_s"),
        ("responses_api_models", "/v1/chat/completions", "model_call_timeout_s"),
        ("responses_api_agents", "/v1/agent_sessions", "seed_timeout_s"),
        ("resources_servers", "/reset", "seed_timeout_s"),
        ("resources_servers", "/step", "tool_call_timeout_s"),
        ("resources_servers", "/close", None),
        ("resources_servers", "/close_session", None),
        ("resources_servers", "/aggregate_metrics", "aggregate_timeout_s"),
        ("responses_api_agents", "/aggregate_metrics", "aggregate_timeout_s"),
        ("responses_api_agents", "/run", None),
        ("responses_api_agents", "/v1/responses", None),
        ("environment_servers", "/run", None),
        (None, "/verify", None),
    ],
)
def test_a_call_belongs_to_a_stage(server_type: str | None, path: str, key: str | None) -> None:
    stage = stage_of(server_type, path)
    assert (None if stage is None else stage.key) == key


def test_limits_are_generous_unless_set() -> None:
    assert all(seconds >= 1800 for seconds in stage_seconds({}).values())
    given = OmegaConf.create({"verify_timeout_s": 3, "seed_timeout_s": None, "tool_call_timeout_s": "0.5"})
    set_ = stage_seconds(given)
    assert [set_[stage] for stage in STAGES] == [0.0, 7200.0, 0.5, 3.0, 3600.0]


@pytest.mark.parametrize("value", ["soon", -1, True, "inf", [1]])
def test_a_limit_that_is_no_number_is_refused_before_anything_starts(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"verify_timeout_s is .*\+verify_timeout_s=600"):
        LaunchSettings.from_config({"verify_timeout_s": value})


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts, and never says anything: a stopped process, or a network that drops every packet."""
    while await read_request(reader):
        pass
    writer.close()


@pytest.mark.parametrize(
    ("server_type", "path", "told"),
    [
        ("resources_servers", "/seed_session", "seeding the session: s did not answer /seed_session within 0.05 s"),
        ("resources_servers", "/verify", "verifying: s did not answer /verify within 0.05 s"),
        ("resources_servers", "/look", "the tool call: s did not answer /look within 0.05 s"),
        ("responses_api_models", "/v1/responses", "the model call: s did not answer /v1/responses within 0.05 s"),
    ],
)
async def test_a_server_that_never_answers_is_named_with_the_stage(server_type: str, path: str, told: str) -> None:
    """B32: the stuck row becomes a timeout failure that says which server, doing what, and for how long."""
    limits = {stage.key: 0.05 for stage in STAGES}
    async with raw_server(silent) as port:
        client = client_of(config_of(("s", server_type, port), **limits))
        with pytest.raises(StageTimeoutError) as caught:
            await client.post("s", path, json={})
    assert told in str(caught.value) and caught.value.stage.key in str(caught.value)
    assert transport_failure_kind(caught.value) == "transport_timeout"


async def test_all_tries_together_take_no_longer_than_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process whose queue of connections is full: nothing connects, and nothing is tried for ever."""
    pauses: list[float] = []

    async def connecting_for_ever(*_: Any, **__: Any) -> Any:
        pauses.append(0.0)
        await asyncio.Event().wait()

    monkeypatch.setattr("nemo_gym.serve.connections.TCPConnector._create_connection", connecting_for_ever)
    client = client_of(config_of(("s", "resources_servers", 9), verify_timeout_s=0.05))
    with pytest.raises(StageTimeoutError):
        await client.post("s", "/verify", json={})
    assert len(pauses) == 1


class Stuck(ToyResources):
    """Verifies for ever, once all members of a group have come."""

    _cancelled: list[str] = PrivateAttr(default_factory=list)
    _arrived: int = PrivateAttr(default=0)
    _complete: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/relay_verify")(self.relay_verify)
        return app

    async def seed_session(self, body: dict[str, Any]) -> BaseSeedSessionResponse:  # type: ignore[override]
        return BaseSeedSessionResponse()

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        self._arrived += 1
        if self._arrived == 4:
            self._complete.set()
        try:
            await self._complete.wait()
        except asyncio.CancelledError:
            self._cancelled.append("verify")
            raise
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

    async def relay_verify(self, body: dict[str, Any]) -> None:
        await self.server_client.post("inner", "/verify", json=body)


def stuck(name: str = "inner", client: Any = None) -> Stuck:
    return Stuck(config=resources_config(name=name), server_client=client or mock_client())


async def eventually_cancelled(server: Stuck, count: int) -> None:
    async with asyncio.timeout(30):
        while len(server._cancelled) < count:
            await asyncio.sleep(0.005)


async def test_a_group_whose_last_member_never_comes_ends_with_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """B38: three of four verify and wait for the fourth; they fail in time, and the server waits no more."""
    defaults = IdempotencyMiddleware.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "grace_seconds", 0.1)
    server = stuck()
    async with serving(assembled(server, monkeypatch)) as port:
        client = client_of(config_of(("inner", "resources_servers", port), verify_timeout_s=0.3))
        members = [client.post("inner", "/verify", json=VERIFY) for _ in range(3)]
        failures = await asyncio.gather(*members, return_exceptions=True)
        assert [type(failure) for failure in failures] == [StageTimeoutError] * 3
        await eventually_cancelled(server, 3)


async def test_the_agent_answers_504_with_the_stage_as_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """B32, B40: what the collector hears names the server that was slow, not the one that gave up on it."""
    async with raw_server(silent) as silent_port:
        client = client_of(config_of(("inner", "resources_servers", silent_port), verify_timeout_s=0.05))
        async with serving(assembled(stuck("outer", client), monkeypatch)) as port:
            answer = await request("POST", f"http://127.0.0.1:{port}/relay_verify", json=VERIFY)
            cause = Cause.of_headers(answer.headers)
    assert answer.status == 504 and cause is not None and (cause.kind, cause.stage) == ("verifier_error", "verify")
    assert "verifying: inner did not answer /verify within 0.05 s" in cause.message


async def test_a_neighbour_in_the_same_process_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = stuck()
    server = local.register("inner", "http://127.0.0.1:1", assembled(inner, monkeypatch))
    client = client_of(config_of(("inner", "resources_servers", 1), verify_timeout_s=0.05))
    try:
        with pytest.raises(StageTimeoutError):
            await client.post("inner", "/verify", json=VERIFY)
        await eventually_cancelled(inner, 1)
    finally:
        local.unregister(server)


async def test_the_rollouts_own_deadline_comes_first_when_it_is_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(silent) as port:
        client = client_of(config_of(("s", "resources_servers", port), verify_timeout_s=60))
        with deadline(0.05), pytest.raises(DeadlineExceededError) as caught:
            await client.post("s", "/verify", json={})
    assert not isinstance(caught.value, StageTimeoutError)


async def test_a_timeout_of_the_callers_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(silent) as port:
        client = client_of(config_of(("s", "resources_servers", port), verify_timeout_s=60))
        with pytest.raises(TimeoutError) as caught:
            await client.post("s", "/verify", json={}, timeout=0.05)
    assert not isinstance(caught.value, DeadlineExceededError)


@pytest.mark.parametrize(
    ("path", "kind", "stage"),
    [("/verify", "verifier_error", "verify"), ("/seed_session", "transport_timeout", "seed"),
     ("/look", "transport_timeout", "tool")],
)  # fmt: skip
async def test_the_kind_of_a_stage_that_takes_too_long_is_a_registered_one(path: str, kind: str, stage: str) -> None:
    """What readers of 0.7's records know; where it was is told beside it."""
    limits = {stage.key: 0.05 for stage in STAGES}
    async with raw_server(silent) as port:
        client = client_of(config_of(("s", "resources_servers", port), **limits))
        with pytest.raises(StageTimeoutError) as caught:
            await client.post("s", path, json={})
    assert (caught.value.failure_kind, caught.value.stage.code) == (kind, stage)
    assert is_registered(kind)
