from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from nemo_gym import telemetry
from nemo_gym.telemetry.http_client import request_span
from nemo_gym.telemetry.propagation import with_traceparent
from tests.unit.telemetry.conftest import Exported

Start = Callable[..., None]


class Server:
    config = SimpleNamespace(name="my_agent")

    async def run(self, number: int) -> int:
        return 2 * number

    def plain(self) -> str:
        return "plain"


async def test_traced_functions_name_their_server_and_rollout(start: Start, exported: Exported) -> None:
    start(rollout_id=lambda: "0-1", SPAN_GROUPS="rollout,agent")
    server = Server()
    traced = telemetry.trace_fn("rollout", "gym.rollout")(server.run)
    assert await traced(4) == 8
    assert telemetry.trace_fn("agent", "gym.agent.responses")(server.plain)() == "plain"
    assert telemetry.trace_fn("verify", "gym.verify")(int)("5") == 5
    assert exported.names() == ["gym.rollout", "gym.agent.responses"]
    span = exported.span("gym.rollout")
    assert span.attributes == {"nemo.gym.server.name": "my_agent", "nemo.gym.rollout.id": "0-1"}
    assert span.kind is SpanKind.INTERNAL


def test_functions_of_no_server_name_the_process(start: Start, exported: Exported) -> None:
    start(SPAN_GROUPS="all")
    telemetry.trace_fn("sandbox", "gym.sandbox")(functools.partial(int, "3"))()
    assert exported.span("gym.sandbox").attributes == {"nemo.gym.server.name": "toy"}


def test_an_error_fails_the_span_and_its_text_stays_here(start: Start, exported: Exported) -> None:
    start()
    with pytest.raises(ValueError), telemetry.managed_span("job", "gym.job"):
        raise ValueError("key sk-123")
    span = exported.span("gym.job")
    assert span.status.status_code is StatusCode.ERROR and span.status.description == "ValueError"
    assert span.attributes == {"error.type": "ValueError"} and not span.events


def test_a_request_is_one_client_span_without_query_or_password(start: Start, exported: Exported) -> None:
    start()
    headers = {"A": "b"}
    with request_span("POST", "http://me:secret@host/v1?key=1", {"headers": headers, "json": 1}, "0-1") as span:
        span.answered(503)
        span.answered(None)
    sent = exported.span("HTTP POST")
    assert sent.kind is SpanKind.CLIENT
    assert sent.attributes == {
        "http.request.method": "POST",
        "url.full": "http://****@host/v1",
        "nemo.gym.rollout.id": "0-1",
        "http.response.status_code": 503,
    }
    trace_id = f"{sent.context.trace_id:032x}"
    assert span.options["json"] == 1 and span.options["headers"]["traceparent"].startswith(f"00-{trace_id}-")
    assert headers == {"A": "b"}


def test_every_shape_of_headers_is_copied(start: Start) -> None:
    start()
    assert with_traceparent(None) is None
    with telemetry.managed_span("job", "gym.job"):
        for headers in (None, {"A": "b"}, [("A", "b")]):
            copy: Any = with_traceparent(headers)
            assert "traceparent" in copy and copy is not headers and (headers is None or copy["A"] == "b")


def test_starting_twice_changes_nothing_and_ending_turns_it_off(start: Start, exported: Exported) -> None:
    start()
    first = telemetry.get_telemetry()
    start()
    assert first is not None and telemetry.get_telemetry() is first
    telemetry.shutdown_telemetry()
    telemetry.shutdown_telemetry()
    assert telemetry.get_telemetry() is None and not telemetry.is_span_group_enabled("job")
    assert not telemetry.is_metrics_exporter_active()
    with telemetry.managed_span("job", "gym.job") as span:
        assert span is None
    start()
    with telemetry.managed_span("job", "gym.job"):
        pass
    assert exported.names() == ["gym.job"], "a host's own exporters outlive us"


def test_traces_alone(start: Start, exported: Exported) -> None:
    start(METRICS_ENABLED="0")
    assert telemetry.is_span_group_enabled("job") and not telemetry.is_metrics_exporter_active()
    telemetry.shutdown_telemetry()
    start(METRICS_ENABLED="1", TRACES_ENABLED="false")
    assert not telemetry.is_span_group_enabled("job") and telemetry.is_metrics_exporter_active()


def test_settings_that_make_no_sense_cost_only_telemetry(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    start(SPAN_GROUPS="nonsense")
    assert telemetry.get_telemetry() is None and "'nonsense' is no span group" in caplog.text


def test_unset_means_off() -> None:
    telemetry.init_telemetry("toy", "resources_servers")
    assert telemetry.get_telemetry() is None and telemetry.server_venv_requirements() == []
