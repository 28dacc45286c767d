"""A request on its way through servers, seen from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from nemo_gym import server_utils, telemetry
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.serve import local
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, request, set_global_aiohttp_client
from nemo_gym.telemetry.connection_pool import _SERVER_NAME
from tests.unit.serve.toys import VERIFY, ToyResources, client_of, config_of, mock_client, resources_config, serving
from tests.unit.telemetry.conftest import Exported

pytestmark = pytest.mark.usefixtures("fresh_client")

Start = Callable[..., None]


class Failing(ToyResources):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise KeyError("key sk-123")


def app_of(server: ToyResources) -> Any:
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    server.instrument_app_for_telemetry(app)
    return app


def toy(kind: type[ToyResources] = ToyResources) -> ToyResources:
    return kind(config=resources_config(), server_client=mock_client())


async def test_a_request_is_one_trace_across_processes(start: Start, exported: Exported) -> None:
    start(rollout_id=current_rollout_id, SPAN_GROUPS="all")
    async with serving(app_of(toy())) as port:
        reply = await request("POST", f"http://127.0.0.1:{port}/ng-rollout/0-1/verify?x=1", json=VERIFY)
        assert reply.status == 200
    sent, answered, verified = (exported.span(name) for name in ("HTTP POST", "POST /verify", "gym.verify"))
    assert answered.kind is SpanKind.SERVER and verified.parent is not None and answered.parent is not None
    assert answered.parent.span_id == sent.context.span_id and verified.parent.span_id == answered.context.span_id
    assert answered.parent.is_remote
    assert answered.attributes == {
        "http.request.method": "POST",
        "url.path": "/verify",
        "nemo.gym.server.name": "toy",
        "nemo.gym.rollout.id": "0-1",
        "http.response.status_code": 200,
    }
    assert verified.attributes == {"nemo.gym.server.name": "toy", "nemo.gym.rollout.id": "0-1"}
    assert sent.attributes is not None and sent.attributes["http.response.status_code"] == 200


async def test_calls_within_the_process_are_in_the_trace_too(start: Start, exported: Exported) -> None:
    start(SPAN_GROUPS="all")
    client = client_of(config_of(("toy", "resources_servers", 9)))
    server = local.register("toy", "http://127.0.0.1:9", app_of(toy()))
    try:
        with telemetry.managed_span("job", "gym.job"):
            assert (await client.post("toy", "/verify", json=VERIFY)).status == 200
    finally:
        local.unregister(server)
    job, sent, answered = (exported.span(name) for name in ("gym.job", "HTTP POST", "POST /verify"))
    assert answered.parent is not None and answered.parent.span_id == sent.context.span_id
    assert sent.context.trace_id == job.context.trace_id


async def test_what_a_server_fails_with_is_seen_without_its_text(start: Start, exported: Exported) -> None:
    start(SPAN_GROUPS="all")
    async with serving(app_of(toy(Failing))) as port:
        assert (await request("POST", f"http://127.0.0.1:{port}/verify", json=VERIFY)).status == 500
    answered, verified = exported.span("POST /verify"), exported.span("gym.verify")
    assert answered.status.status_code is StatusCode.ERROR
    assert verified.attributes is not None and verified.attributes["error.type"] == "KeyError"
    assert "sk-123" not in str([span.to_json() for span in exported.spans.get_finished_spans()])
    assert exported.points("gym.verify.success_rate")[0].value == 0


async def test_a_server_without_its_group_has_no_spans(start: Start, exported: Exported) -> None:
    start(SPAN_GROUPS="verify")
    async with serving(app_of(toy())) as port:
        await request("POST", f"http://127.0.0.1:{port}/verify", json=VERIFY)
    assert exported.names() == ["gym.verify"]


async def test_waiting_for_a_connection_is_measured_by_destination(start: Start, exported: Exported) -> None:
    start(SPAN_GROUPS="job")
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig(global_aiohttp_connector_limit_per_host=1))
    async with serving(app_of(toy())) as port:
        url = f"http://127.0.0.1:{port}/verify"
        replies = await asyncio.gather(
            *(request("POST", url, json=VERIFY, _server_name="toy") for _ in range(2)),
            request("POST", url, json=VERIFY),
        )
        assert [reply.status for reply in replies] == [200, 200, 200]
    waits = {point.attributes["nemo.gym.http.destination.server.name"]: point for point in exported.points(WAITED)}
    assert waits["external"].count == 1 and waits["toy"].count == 1
    assert waits["toy"].attributes["nemo.gym.http.connection_pool.queue_constraint"] == "per_host"
    assert waits["toy"].attributes["nemo.gym.http.connection_pool.queue_outcome"] == "ok"
    opened = exported.points("gym.http.connection_pool.connect_total")
    assert sum(point.value for point in opened) >= 1 and _SERVER_NAME.get() == "external"


WAITED = "gym.http.connection_pool.queue_duration_ms"


async def test_giving_up_waiting_is_told_from_getting_a_connection(start: Start, exported: Exported) -> None:
    start()
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig(global_aiohttp_connector_limit=1))
    arrived, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(ToyResources):
        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            arrived.set()
            await goes_on.wait()
            return await super().verify(body)

    async with serving(app_of(toy(Slow))) as port:
        url = f"http://127.0.0.1:{port}/verify"
        first = asyncio.create_task(request("POST", url, json=VERIFY))
        await arrived.wait()
        second = asyncio.create_task(request("POST", url, json=VERIFY, _server_name="toy"))
        while not server_utils.get_global_aiohttp_client().connector._waiters:  # type: ignore[union-attr]
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        goes_on.set()
        await first
    (point,) = exported.points(WAITED)
    assert point.attributes["nemo.gym.http.connection_pool.queue_outcome"] == "abandoned"
    assert point.attributes["nemo.gym.http.connection_pool.queue_constraint"] == "total"


async def test_the_pool_is_not_watched_when_nobody_listens() -> None:
    session = set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    connector: Any = session.connector
    assert server_utils._GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY is None and connector._telemetry is None
