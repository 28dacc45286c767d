from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from nemo_gym import server_utils, telemetry
from nemo_gym.telemetry import _fallbacks
from nemo_gym.telemetry._fallbacks import (
    NEMO_LENS_AVAILABLE,
    is_span_group_enabled,
    managed_span,
    safe_set_span_attributes,
    span_cm,
    trace_fn,
)
from nemo_gym.telemetry.connection_pool import _SERVER_NAME


class Recorder:
    """Keeps the spans it is asked for."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Mapping[str, Any]]] = []

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, Any]) -> Iterator[str]:
        self.spans.append((name, attributes))
        yield "span"

    def open(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
        return self._span(name, attributes)

    def wrap(self, function: Any, name: str) -> Any:
        def wrapped(*args: Any) -> Any:
            with self._span(name, {}):
                return function(*args)

        return wrapped


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    _fallbacks.install(recorder, ["verify", "http_client"])
    yield recorder
    _fallbacks.install(None)


def double(number: int) -> int:
    return 2 * number


def test_off_is_nothing() -> None:
    assert not NEMO_LENS_AVAILABLE and not is_span_group_enabled("verify")
    with managed_span("verify", "gym.verify", a=1) as span, span_cm("verify", "x") as other:
        assert span is None and other is None
    assert trace_fn("verify", "x")(double) is double
    safe_set_span_attributes(None, {"a": 1})
    telemetry.init_telemetry("name", "resources_servers")
    telemetry.shutdown_telemetry()
    assert telemetry.is_metrics_exporter_active() is False
    assert server_utils._GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY is None
    assert _SERVER_NAME.get() == "external"


def test_on_records_the_groups_asked_for(recorder: Recorder) -> None:
    with managed_span("verify", "gym.verify", a=1) as span:
        assert span == "span"
    with managed_span("agent", "gym.agent"):
        pass
    assert trace_fn("verify", "traced")(double)(4) == 8
    assert trace_fn("agent", "untraced")(double) is double
    assert recorder.spans == [("gym.verify", {"a": 1}), ("traced", {})]


def test_attributes_never_raise_and_can_be_masked() -> None:
    class Span:
        def __init__(self) -> None:
            self.seen: dict[str, Any] = {}

        def set_attribute(self, key: str, value: Any) -> None:
            if key == "bad":
                raise TypeError
            self.seen[key] = value

    span = Span()
    safe_set_span_attributes(span, {"bad": 1, "key": "secret", "n": 2}, redact_keys=["key"])
    assert span.seen == {"key": "****", "n": 2}


async def test_requests_are_traced_without_their_query(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        async def request(self, *args: Any, **options: Any) -> str:
            return "reply"

    monkeypatch.setattr(server_utils, "_GLOBAL_AIOHTTP_CLIENT", Fake())
    await server_utils.request("POST", "http://h/x?key=secret")
    assert recorder.spans == [("HTTP POST", {"http.request.method": "POST", "url.full": "http://h/x"})]
