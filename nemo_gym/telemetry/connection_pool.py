"""Waiting for a connection of the shared HTTP client, by the server it goes to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Literal

from nemo_gym.telemetry.metrics import record

_SERVER_NAME: ContextVar[str] = ContextVar("nemo_gym_http_server_name", default="external")

QueueConstraint = Literal["total", "per_host", "unknown"]
QueueOutcome = Literal["ok", "abandoned"]

_PREFIX = "gym.http.connection_pool"
_ATTRIBUTE = "nemo.gym.http.connection_pool"
_DESTINATION = "nemo.gym.http.destination.server.name"


class ConnectionPoolTelemetry:
    """Reports what requests went through before they had a connection."""

    def queued(self, seconds: float, constraint: QueueConstraint, outcome: QueueOutcome) -> None:
        """A request waited, since a limit was reached, until it had a slot or was given up."""
        attributes = {
            f"{_ATTRIBUTE}.queue_constraint": constraint,
            f"{_ATTRIBUTE}.queue_outcome": outcome,
            _DESTINATION: _SERVER_NAME.get(),
        }
        record(f"{_PREFIX}.queue_duration_ms", seconds * 1000, attributes)

    def connected(self) -> None:
        """A connection was opened."""
        record(f"{_PREFIX}.connect_total", 1, {_DESTINATION: _SERVER_NAME.get()})
