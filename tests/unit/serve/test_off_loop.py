"""Verifiers that are plain functions, and how late the loop is."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest
from fastapi import Request
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SessionStore
from nemo_gym.config.errors import ConfigError
from nemo_gym.judge import JudgeError
from nemo_gym.serve import loop_lag
from nemo_gym.serve.correlation import current_rollout_id, rollout_context
from nemo_gym.serve.failures import Cause
from nemo_gym.serve.off_loop import off_the_loop
from nemo_gym.server_utils import request
from nemo_gym.verifiers.worker_pool import WorkerPool
from tests.unit.serve.test_deadline import assembled
from tests.unit.serve.toys import VERIFY, ToyResources, mock_client, resources_config, serving
from tests.unit.verifiers import work

pytestmark = pytest.mark.usefixtures("fresh_client")


class Blocking(ToyResources):
    """Scores in a plain function that waits until somebody calls a tool."""

    _called: threading.Event = PrivateAttr(default_factory=threading.Event)
    _seen: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> Any:
        app = super().setup_webserver()
        app.post("/tool")(self.tool)
        return app

    def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:  # type: ignore[override]
        self._seen = {"thread": threading.current_thread(), "session": request.session["session_id"]}
        if not self._called.wait(20):
            raise TimeoutError("no tool was called while the score was computed")
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

    async def tool(self, body: dict[str, Any]) -> dict[str, Any]:
        self._called.set()
        return {}


class Hanging(ToyResources):
    """Scores in a worker, which never ends."""

    _pool: WorkerPool = PrivateAttr(default_factory=lambda: WorkerPool(max_workers=1))

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        await self._pool.run(work.spin, timeout=0.2)
        raise AssertionError


class JudgeLost(ToyResources):
    def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:  # type: ignore[override]
        raise JudgeError("no answer")


def of(cls: type[ToyResources], **fields: Any) -> Any:
    return cls(config=resources_config(**fields), server_client=mock_client())


async def post(app: Any, path: str) -> tuple[int, Any, Cause | None]:
    async with serving(app) as port:
        answer = await request("POST", f"http://127.0.0.1:{port}{path}", json=VERIFY)
        return answer.status, await answer.json(), Cause.of_headers(answer.headers)


async def test_a_plain_verify_leaves_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """B35: tool calls are answered while a score is computed; here the score even waits for one."""
    server = of(Blocking)
    async with serving(assembled(server, monkeypatch)) as port:
        verdict = asyncio.create_task(request("POST", f"http://127.0.0.1:{port}/verify", json=VERIFY))
        async with asyncio.timeout(20):
            while not server._seen:
                await asyncio.sleep(0.005)
        assert (await request("POST", f"http://127.0.0.1:{port}/tool", json={})).status == 200
        assert (await (await verdict).json())["reward"] == 1.0
    assert server._seen["thread"] is not threading.main_thread() and server._seen["session"]


async def test_a_judge_that_failed_in_a_plain_verify_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """B82."""
    status, verdict, _ = await post(assembled(of(JudgeLost), monkeypatch), "/verify")
    assert (status, verdict["failure_kind"], verdict["mask_sample"]) == (200, "judge_failed", True)


async def test_a_score_that_hangs_is_a_failure_of_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """B35, B82: no timeout of the network, and no reward of 0."""
    status, _, cause = await post(assembled(of(Hanging), monkeypatch), "/verify")
    assert status == 500 and cause is not None
    assert (cause.kind, cause.error) == ("verifier_error", "WorkerTimeoutError")


async def test_what_runs_elsewhere_keeps_context_and_signature() -> None:
    def handler(self_: int, body: BaseVerifyRequest) -> str | None:
        return current_rollout_id()

    wrapped = off_the_loop(handler)
    assert inspect.iscoroutinefunction(inspect.unwrap(wrapped))
    assert inspect.signature(wrapped).parameters["body"].annotation is BaseVerifyRequest
    with rollout_context("r1"):
        assert await wrapped(1, None) == "r1"
    assert off_the_loop(ToyResources.verify) is ToyResources.verify


class Stateful(ToyResources):
    _sessions: SessionStore[int] = PrivateAttr(default_factory=SessionStore)


def test_sessions_in_memory_and_several_workers_exclude_each_other() -> None:
    """A session opened by one worker would begin anew, in silence, at the next."""
    with pytest.raises(ConfigError, match=r"toy keeps its sessions in memory.*num_workers to 1"):
        of(Stateful, num_workers=2).setup_webserver()
    assert of(Stateful, num_workers=1).setup_webserver() and of(ToyResources, num_workers=2).setup_webserver()


# --- lag --------------------------------------------------------------------------------------------------------------


def test_a_loop_that_is_held_up_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """B35: the lag is a number others can ask for, from a thread even while it lasts."""
    monkeypatch.setattr(loop_lag, "_probes", type(loop_lag._probes)())
    monkeypatch.setattr(loop_lag, "PROBE_SECONDS", 0.01)
    assert loop_lag.loop_lag_seconds() is None
    held, release = threading.Event(), threading.Event()
    asked_in_time: list[bool] = []

    async def hold() -> None:
        assert loop_lag.watch_loop_lag() is loop_lag.watch_loop_lag()
        held.set()
        asked_in_time.append(release.wait(10))
        await asyncio.sleep(0.05)

    thread = threading.Thread(target=asyncio.run, args=(hold(),))
    thread.start()
    held.wait(20)
    while (during := loop_lag.loop_lag_seconds() or 0.0) < 0.1:
        pass
    release.set()
    thread.join()
    assert asked_in_time == [True]
    after = loop_lag.loop_lag_seconds()
    assert after is None or after >= during - 0.05
