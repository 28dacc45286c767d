"""The numbers Gym reports while it runs. Recording one costs nothing until a meter is installed."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

Kind = Literal["histogram", "counter", "up_down_counter", "gauge"]

INSTRUMENTS: Mapping[str, tuple[Kind, str, str]] = {
    "gym.rollout.duration_ms": ("histogram", "ms", "Wall time of a rollout in its agent"),
    "gym.verify.duration_ms": ("histogram", "ms", "Wall time of a verification"),
    "gym.verify.success_rate": ("gauge", "1", "Share of this process's verifications that ended without an error"),
    "gym.servers.active": ("gauge", "{server}", "Servers of the run that are up"),
    "gym.sandbox.active": ("up_down_counter", "{sandbox}", "Sandboxes that exist"),
    "gym.sandbox.startup_duration_ms": ("histogram", "ms", "Time until a sandbox could be used"),
    "gym.sandbox.exec_duration_ms": ("histogram", "ms", "Time of a command in a sandbox"),
    "gym.sandbox.create_retry_total": ("counter", "{retry}", "Sandboxes whose creation was tried again"),
    "gym.http.connection_pool.queue_duration_ms": ("histogram", "ms", "Time a request waited for a connection"),
    "gym.http.connection_pool.connect_total": ("counter", "{connection}", "Connections opened"),
    "gym.server.memory.usage": ("gauge", "By", "Memory of a server's processes now"),
    "gym.server.memory.sampled_peak": ("gauge", "By", "Largest memory of a server's processes that was seen"),
    "gym.server.processes": ("gauge", "{process}", "Processes of a server"),
    "gym.host.memory.usage": ("gauge", "By", "Memory in use on the machine"),
    "gym.host.memory.available": ("gauge", "By", "Memory the machine has left"),
    "gym.host.memory.total": ("gauge", "By", "Memory of the machine"),
    "gym.host.memory.sampled_peak": ("gauge", "By", "Largest use of the machine's memory that was seen"),
}

DURATION_OF_SPAN = {"gym.rollout": "gym.rollout.duration_ms", "gym.verify": "gym.verify.duration_ms"}
_SERVER_NAME_ATTRIBUTE = "nemo.gym.server.name"

_Attributes = Mapping[str, str | int | float | bool]
_Record = Callable[[float, _Attributes], None]

_meter: Meter | None = None
_recorders: dict[str, _Record] = {}


def install_meter(meter: Meter | None) -> None:
    """Report to this meter from now on, or to nobody."""
    global _meter
    _meter = meter
    _recorders.clear()


def is_metrics_exporter_active() -> bool:
    """Whether metrics leave this process."""
    return _meter is not None


def record(name: str, value: float, attributes: _Attributes | None = None) -> None:
    """Report a value of one of `INSTRUMENTS`, if anybody listens."""
    if _meter is None:
        return
    recorder = _recorders.get(name)
    if recorder is None:
        recorder = _recorders[name] = _instrument(_meter, name)
    recorder(value, attributes or {})


def _instrument(meter: Meter, name: str) -> _Record:
    kind, unit, description = INSTRUMENTS[name]
    if kind == "histogram":
        return meter.create_histogram(name, unit, description).record
    if kind == "counter":
        return meter.create_counter(name, unit, description).add
    if kind == "up_down_counter":
        return meter.create_up_down_counter(name, unit, description).add
    return meter.create_gauge(name, unit, description).set


class CallMeasure:
    """Times the calls of functions whose span has a duration metric, and counts how many of them succeed."""

    def __init__(self, server_name: str) -> None:
        self._attributes = {_SERVER_NAME_ATTRIBUTE: server_name}
        self._succeeded = 0
        self._ended = 0
        self._lock = Lock()

    def __call__(self, function: Any, span_name: str) -> Any:
        """The function, sync or async, measured if there is a metric of its duration."""
        metric = DURATION_OF_SPAN.get(span_name)
        if metric is None:
            return function
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def measured_async(*args: Any, **kwargs: Any) -> Any:
                started, has_succeeded = time.perf_counter(), False
                try:
                    result = await function(*args, **kwargs)
                    has_succeeded = True
                    return result
                finally:
                    self._note(metric, started, has_succeeded)

            return measured_async

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            started, has_succeeded = time.perf_counter(), False
            try:
                result = function(*args, **kwargs)
                has_succeeded = True
                return result
            finally:
                self._note(metric, started, has_succeeded)

        return measured

    def _note(self, metric: str, started: float, has_succeeded: bool) -> None:
        record(metric, (time.perf_counter() - started) * 1000, self._attributes)
        if metric != "gym.verify.duration_ms":
            return
        with self._lock:
            self._ended += 1
            self._succeeded += has_succeeded
            rate = self._succeeded / self._ended
        record("gym.verify.success_rate", rate, self._attributes)
