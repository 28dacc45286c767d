from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.base_environment_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseEnvironmentServer,
    BaseEnvironmentServerConfig,
    Body,
    CleanupContext,
    HandledEpisodeError,
)
from nemo_gym.episode_types import BaseEpisodeRequest, BaseEpisodeResponse, EpisodeFailure, EpisodeId, TaskId
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.server_utils import _server_type_of
from tests.unit.serve.toys import mock_client

REQUEST: dict[str, Any] = {
    "episode_id": {"rollout_id": "7-0", "attempt": 2},
    "task": {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"n": 1}},
}


class Request(BaseEpisodeRequest[dict[str, int]]):
    pass


class Reply(BaseEpisodeResponse[dict[str, Any]]):
    pass


Do = Callable[[CleanupContext], Awaitable[Any]]


class Toy(BaseEnvironmentServer[Request, Reply]):
    """Runs what a test gives it."""

    config: BaseEnvironmentServerConfig
    request_model: ClassVar[type[Any]] = Request
    response_model: ClassVar[type[Any]] = Reply

    do: Any = None

    async def run(self, request: Request, cleanup: CleanupContext) -> Reply:
        result = await self.do(cleanup)
        if isinstance(result, Reply):
            return result
        return Reply(episode_id=request.episode_id, task_id=request.task.task_id, result={"got": result})

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        return AggregateMetrics(agent_metrics={"n": len(body.verify_responses)})


def config(**fields: Any) -> BaseEnvironmentServerConfig:
    base = {"host": "127.0.0.1", "port": 1, "entrypoint": "", "name": "env", "cleanup_timeout_seconds": 5}
    return BaseEnvironmentServerConfig.model_validate({**base, **fields})


def server(do: Do, **fields: Any) -> Toy:
    return Toy(config=config(**fields), server_client=mock_client(), do=do)


async def run(toy: Toy) -> Reply:
    return await toy.run_request(Request.model_validate(REQUEST))


async def answer(cleanup: CleanupContext) -> Any:
    return current_rollout_id()


# --- routes -----------------------------------------------------------------------------------------------------------


def test_an_episode_is_run_within_its_rollout() -> None:
    client = TestClient(server(answer).setup_webserver())
    reply = client.post("/run", json=REQUEST)
    assert reply.json() == {
        "episode_id": REQUEST["episode_id"],
        "task_id": REQUEST["task"]["task_id"],
        "result": {"got": "7-0-a2"},
        "failure": None,
    }
    assert not reply.cookies and "X-NeMo-Gym-Episode-Failure" not in reply.headers
    assert current_rollout_id() is None
    assert client.post("/aggregate_metrics", json={"verify_responses": [{}]}).json()["agent_metrics"] == {"n": 1}
    assert _server_type_of(Toy) == "environment_servers"


@pytest.mark.parametrize("wrong", [{}, {**REQUEST, "x": 1}, {**REQUEST, "episode_id": {"rollout_id": "../x"}}])
def test_what_asks_for_no_episode_is_refused(wrong: dict[str, Any]) -> None:
    assert TestClient(server(answer).setup_webserver()).post("/run", json=wrong).status_code == 422


def test_a_failure_is_answered_with_200_and_told_in_a_header() -> None:
    failure = EpisodeFailure(failure_reason="no seat", terminal=False, stage="seed")

    async def fail(cleanup: CleanupContext) -> Any:
        raise HandledEpisodeError(failure)

    reply = TestClient(server(fail).setup_webserver()).post("/run", json=REQUEST)
    assert reply.status_code == 200 and reply.headers["X-NeMo-Gym-Episode-Failure"] == "seed"
    assert reply.json()["failure"] == {"failure_reason": "no seat", "terminal": False, "stage": "seed"}


# --- outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [LookupError("x" * 3000), TimeoutError("somebody else's")])
async def test_what_nobody_expected_is_terminal(error: Exception) -> None:
    async def fail(cleanup: CleanupContext) -> Any:
        raise error

    failure = (await run(server(fail, default_episode_timeout_seconds=60))).failure
    assert failure is not None and failure.terminal
    assert failure.failure_reason.startswith(f"{type(error).__name__}: {error}"[:100])
    assert len(failure.failure_reason) <= 2000


async def test_an_episode_that_takes_too_long_may_be_tried_again() -> None:
    closed = asyncio.Event()

    async def hang(cleanup: CleanupContext) -> Any:
        cleanup.register_cleanup("it", _setting(closed))
        await asyncio.Event().wait()

    failure = (await run(server(hang, default_episode_timeout_seconds=0.01))).failure
    assert failure is not None and not failure.terminal and "default_episode_timeout_seconds" in failure.failure_reason
    assert closed.is_set()


@pytest.mark.parametrize(
    "change", [{"episode_id": EpisodeId(rollout_id="other")}, {"task_id": TaskId(taskset="t", task_id="2")}]
)
async def test_a_response_to_another_request_is_a_failure(change: dict[str, Any]) -> None:
    async def other(cleanup: CleanupContext) -> Any:
        right = {"episode_id": cleanup.episode_id, "task_id": TaskId(taskset="t", task_id="1")}
        return Reply.model_validate({**right, **change, "result": {}})

    failure = (await run(server(other))).failure
    assert failure is not None and failure.terminal and "asked for was" in failure.failure_reason


def _setting(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def callback() -> None:
        event.set()

    return callback


# --- admission --------------------------------------------------------------------------------------------------------


async def test_no_more_episodes_run_than_are_allowed() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def stay(cleanup: CleanupContext) -> Any:
        entered.set()
        await leave.wait()

    toy = server(stay, max_concurrent_episodes=1, queue_timeout_seconds=0.01)
    first = asyncio.create_task(run(toy))
    await entered.wait()
    assert toy._admission is not None and toy._admission.locked()
    failure = (await run(toy)).failure
    assert failure is not None and (failure.stage, failure.terminal) == ("admission", False)
    leave.set()
    assert (await first).failure is None and not toy._admission.locked()


def test_workers_share_the_places() -> None:
    limits = {"max_concurrent_episodes": 8, "queue_timeout_seconds": 1}
    for workers, places in ((None, 8), (4, 2), (16, 1)):
        admission = server(answer, **limits, num_workers=workers)._admission
        assert admission is not None and admission._value == places
    assert server(answer)._admission is None


@pytest.mark.parametrize(
    "fields",
    [
        {"max_concurrent_episodes": 1},
        {"max_concurrent_episodes": 0, "queue_timeout_seconds": 1},
        {"default_episode_timeout_seconds": 0},
        {"cleanup_timeout_seconds": 0},
        {"cleanup_timeout_seconds": None},
        {"unheard_of": 1},
    ],
)
def test_limits_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**fields)


# --- cleanup ----------------------------------------------------------------------------------------------------------


def context(seconds: float = 5) -> CleanupContext:
    return CleanupContext(EpisodeId(rollout_id="r"), seconds)


class Log:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def callback(self, name: str, *, fails: int = 0) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.seen.append(name)
            if self.seen.count(name) <= fails:
                raise OSError(name)

        return run


async def test_the_last_registered_is_cleaned_up_first_and_each_once(caplog: pytest.LogCaptureFixture) -> None:
    log, cleanup = Log(), context()
    cleanup.register_cleanup("a", log.callback("a"))
    cleanup.register_cleanup("b", log.callback("b", fails=9))
    early = cleanup.register_cleanup("c", log.callback("c"))
    for _ in range(2):
        await early.close()
    for _ in range(2):
        await cleanup.aclose()
    assert log.seen == ["c", "b", "a"]
    assert "cleaning up b failed" in caplog.text


async def test_a_message_that_is_no_unicode_is_still_a_failure() -> None:
    async def fails(cleanup: CleanupContext) -> Any:
        raise ValueError("half \ud800")

    failure = (await run(server(fails))).failure
    assert failure is not None and failure.failure_reason == "ValueError: half \\ud800"


async def test_a_handle_that_failed_is_tried_again_at_the_end() -> None:
    log, cleanup = Log(), context()
    handle = cleanup.register_cleanup("a", log.callback("a", fails=1))
    with pytest.raises(OSError, match="a"):
        await handle.close()
    await cleanup.aclose()
    await handle.close()
    assert log.seen == ["a", "a"]


async def test_a_callback_that_hangs_leaves_time_to_the_others() -> None:
    log, cleanup = Log(), context(0.05)
    cleanup.register_cleanup("a", log.callback("a"))
    cleanup.register_cleanup("hangs", asyncio.Event().wait)  # type: ignore[arg-type]
    await cleanup.aclose()
    assert log.seen == ["a"]


async def test_a_handle_does_not_wait_for_ever() -> None:
    cleanup = context(0.01)
    handle = cleanup.register_cleanup("hangs", asyncio.Event().wait)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        await handle.close()


async def test_cancelling_waits_for_the_cleanup() -> None:
    entered, cleaning, go_on, done = (asyncio.Event() for _ in range(4))

    async def clean() -> None:
        cleaning.set()
        await go_on.wait()
        done.set()

    async def stay(cleanup: CleanupContext) -> Any:
        cleanup.register_cleanup("it", clean)
        entered.set()
        await asyncio.Event().wait()

    toy = server(stay, max_concurrent_episodes=1, queue_timeout_seconds=1)
    task = asyncio.create_task(run(toy))
    await entered.wait()
    task.cancel()
    await cleaning.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert toy._admission is not None and toy._admission.locked() and not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set() and not toy._admission.locked()
