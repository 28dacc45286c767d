"""Sending rows to environment servers: one request per rollout, tried again where that can help."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ENVIRONMENT_SERVER_STAMP_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.rollouts.admission import Admission
from nemo_gym.rollouts.budget import Budget, DispatchLatencyTracker
from nemo_gym.rollouts.errors import ReplyError
from nemo_gym.rollouts.failures import (
    failure_class_of,
    failure_row,
    http_status_of,
    is_request_failure,
    is_worth_a_retry,
    pressure_behind,
    rule_for,
)
from nemo_gym.rollouts.in_flight import Entry, InFlight
from nemo_gym.rollouts.keys import (
    NG_DISPATCH_DRAINED_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY,
    TASK_ID_KEY,
    TASKSET_KEY,
)
from nemo_gym.rollouts.pinning import ClientOf
from nemo_gym.rollouts.records import episode_record, episode_request, is_episode_reply
from nemo_gym.rollouts.rows import Row
from nemo_gym.rollouts.watching import outlive_servers
from nemo_gym.schema.episodes import is_materialized_task_row
from nemo_gym.schema.pressure import pressure_in
from nemo_gym.serve.deadline import deadline, seconds_left

Result = dict[str, Any]

RETRIES = 3
RETRY_SECONDS = 120.0
_FIRST_DELAYS = (1.0, 5.0, 25.0)


class RunResponse(Protocol):
    """What a client's `post` returns: an HTTP reply, wherever it came from."""

    async def read(self) -> bytes: ...


class RolloutClient(Protocol):
    """The part of `ServerClient` that a collection needs."""

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Any: ...


class ServerOf(Protocol):
    """Finds the environment server that runs a row, and the kind of server it is."""

    def __call__(self, row: Mapping[str, Any]) -> tuple[str, str | None]: ...


class AttemptListener(Protocol):
    """Is told what happens to a row before its result is there."""

    def dispatched(self, row: Row) -> None:
        """The row is about to be sent."""

    def retried(self, row: Row, number: int, delay: float, failure: Result) -> None:
        """The row failed and is sent again in `delay` seconds, for the `number`-th time."""

    def failed(self, row: Row, server: str, error: BaseException) -> None:
        """The row failed for good."""


@dataclass
class CompletedRollout:
    """A row (the caller's own object), what came of it, how long the last request took, and who ran it.

    `sent` is the row as it was last sent, where that differs. `is_prepared` says that the result has its stamps.
    """

    row: Row
    result: Result
    rollout_latency_ms: float | None
    environment_server: str | None = None
    environment_server_type: str | None = None
    sent: Row | None = None
    is_prepared: bool = False


@dataclass(frozen=True)
class Retries:
    """How often and how long a failed request is tried again in place; none by default."""

    limit: int = 0
    seconds: float = RETRY_SECONDS
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = field(default=lambda: random.uniform(0.5, 1.5))

    def delay(self, number: int, waited: float) -> float | None:
        """Seconds to wait before the `number`-th retry, None when that is one too many."""
        left = self.seconds - waited
        if number > self.limit or left <= 0:
            return None
        return min(_FIRST_DELAYS[min(number, len(_FIRST_DELAYS)) - 1] * self.jitter(), left)


IN_PLACE = Retries(limit=RETRIES)


@dataclass
class Dispatcher:
    """Runs rows one request each; `admission` bounds how many are in flight.

    With `failures_as_rows` a request that fails becomes a failure row; without, its exception is raised.
    """

    client: RolloutClient
    raise_for_status: Callable[[Any], Awaitable[None]]
    server_of: ServerOf
    admission: AbstractAsyncContextManager[Any]
    listener: AttemptListener
    budget: Budget
    tracker: DispatchLatencyTracker
    failures_as_rows: bool = False
    retries: Retries = Retries()
    rollout_seconds: float | None = None
    """What a rollout may take, its retries included; every server that works for it is told."""
    client_of: ClientOf | None = None
    """Where a row's client isn't simply `client`."""
    in_flight: InFlight = field(default_factory=InFlight)

    def __post_init__(self) -> None:
        if isinstance(self.admission, Admission):
            self.in_flight.admission = self.admission

    async def run(self, row: Row) -> CompletedRollout:
        """The outcome of one row."""
        server, server_type = self.server_of(row)
        with self.in_flight.entry(row, server) as entry:
            async with self.admission:
                if self.budget.is_spent():
                    self.tracker.record_drained()
                    self.in_flight.ended("drained")
                    return CompletedRollout(row, _drained_result(), None, server, server_type)
                self.listener.dispatched(row)
                with deadline(self.rollout_seconds):
                    completed = await self._run_with_retries(row, server, entry)
        self.in_flight.ended("done" if failure_class_of(completed.result) is None else "failed")
        if completed.rollout_latency_ms is not None:
            self.tracker.record(completed.rollout_latency_ms / 1000)
        completed.environment_server, completed.environment_server_type = server, server_type
        return completed

    async def _run_with_retries(self, row: Row, server: str, entry: Entry) -> CompletedRollout:
        body, number, waited = row, 0, 0.0
        while True:
            entry.enter("running")
            started = time.monotonic()
            try:
                result = await self._request(body, server)
                return CompletedRollout(row, result, (time.monotonic() - started) * 1000, sent=body)
            except Exception as error:
                failure = failure_row(error) if is_request_failure(error) else None
                number += 1
                is_tried_again = failure is not None and is_worth_a_retry(failure, number)
                delay = self.retries.delay(number, waited) if is_tried_again else None
                if delay is None or failure is None or delay >= (seconds_left() or math.inf):
                    if failure is not None and rule_for(failure[NG_FAILURE_CLASS_KEY]).boundary == "transport":
                        await outlive_servers()
                    self.listener.failed(row, server, error)
                    if failure is None or not self.failures_as_rows:
                        self.in_flight.ended("failed")
                        raise
                    return CompletedRollout(row, failure, None, sent=body)
            self.listener.retried(row, number, delay, failure)
            self.in_flight.retrying(entry)
            await self.retries.sleep(delay)
            waited += delay
            body = with_own_capture_id(row, number)
            entry.rollout_id = body[ROLLOUT_ID_KEY_NAME]

    async def _request(self, row: Row, server: str) -> Result:
        is_episode = is_materialized_task_row(row)
        body = episode_request(row) if is_episode else row
        client: RolloutClient = self.client if self.client_of is None else self.client_of(row)
        response: RunResponse = await client.post(server_name=server, url_path="/run", json=body)
        try:
            await self.raise_for_status(response)
        except Exception as error:
            self._note_pressure(response, error)
            raise
        self._note_pressure(response)
        reply = orjson.loads(await response.read())
        if not isinstance(reply, dict):
            raise ReplyError(f"{server} answered /run with something that is not an object.")
        return episode_record(reply) if is_episode and is_episode_reply(reply) else reply

    def _note_pressure(self, response: RunResponse, error: Exception | None = None) -> None:
        """Have the admission hear whether a provider had enough while a reply was made."""
        if not isinstance(self.admission, Admission):
            return
        headers = getattr(response, "headers", None)
        told = None if headers is None else pressure_in(headers)
        if error is not None and (behind := pressure_behind(error)) is not None:
            told = max(told or 0.0, behind)
        if told is None:
            self.admission.eased()
        else:
            self.admission.pressed(min(told, self.budget.seconds_left()))


def with_own_capture_id(row: Row, number: int) -> Row:
    """A copy of the row whose model calls are captured apart from those of the attempt that failed."""
    base = row.get(ROLLOUT_ID_KEY_NAME) or f"{row.get(TASK_INDEX_KEY_NAME)}-{row.get(ROLLOUT_INDEX_KEY_NAME)}"
    return {**row, ROLLOUT_ID_KEY_NAME: f"{base}.r{number}"}


def _drained_result() -> Result:
    return {
        NG_FAILURE_CLASS_KEY: "cancelled",
        NG_NO_PERSIST_KEY: True,
        NG_DISPATCH_DRAINED_KEY: True,
        "error_message": "not started: the dispatch budget was spent",
    }


def request_summary(row: Mapping[str, Any], server: str | None = None) -> str:
    """Which request a message is about, as JSON: indices, agent, server and task set, as far as known."""
    agent = row.get(AGENT_REF_KEY_NAME)
    task_id = row.get(TASK_ID_KEY)
    facts = {
        TASK_INDEX_KEY_NAME: row.get(TASK_INDEX_KEY_NAME),
        ROLLOUT_INDEX_KEY_NAME: row.get(ROLLOUT_INDEX_KEY_NAME),
        "agent_name": agent.get("name") if isinstance(agent, Mapping) else None,
        "environment_server": server or row.get(ENVIRONMENT_SERVER_STAMP_KEY_NAME),
        TASKSET_KEY: task_id.get(TASKSET_KEY) if isinstance(task_id, Mapping) else None,
    }
    return orjson.dumps({name: fact for name, fact in facts.items() if fact is not None}, default=str).decode()


def failure_notice(row: Mapping[str, Any], server: str, error: BaseException) -> str:
    return f"[rollout_collection] /run failed status={http_status_of(error)} row={request_summary(row, server)}"
