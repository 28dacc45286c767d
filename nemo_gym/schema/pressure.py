"""A backend that asked for fewer requests, noted for whoever answers the request that it was asked for.

The note travels with the answers, up the chain of servers, to the collector, which decides how much is in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

PRESSURE_HEADER = "X-NeMo-Gym-Pressure"
"""On an answer: while it was made, a backend asked for quiet (429, 503 and the like), for that many seconds."""

_HEADER = PRESSURE_HEADER.lower().encode("ascii")


@dataclass(slots=True)
class Pressure:
    """What was noted while a request was answered: the longest wait asked for, None when nobody asked."""

    seconds: float | None = None

    def noted_on(self, message: dict[str, Any]) -> dict[str, Any]:
        """The first message of an ASGI answer, with what was noted."""
        if self.seconds is None or message["type"] != "http.response.start":
            return message
        return {**message, "headers": [*message.get("headers", ()), (_HEADER, b"%.3f" % self.seconds)]}


_current: ContextVar[Pressure | None] = ContextVar("nemo_gym_pressure", default=None)


def watch_pressure(pressure: Pressure) -> Token[Pressure | None]:
    """From now on `pressure` takes what is noted here and in tasks started here; end it with `unwatch_pressure`."""
    return _current.set(pressure)


def unwatch_pressure(token: Token[Pressure | None]) -> None:
    _current.reset(token)


def note_pressure(seconds: float | None) -> None:
    """A backend asked to be left alone for `seconds`, 0 when it didn't say how long; None: nobody asked."""
    pressure = _current.get()
    if pressure is not None and seconds is not None:
        pressure.seconds = max(pressure.seconds or 0.0, seconds)


def pressure_in(headers: Any) -> float | None:
    """The seconds that the headers of an answer tell; None where they don't."""
    text = headers.get(PRESSURE_HEADER)
    try:
        return max(0.0, float(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def pressure_in_raw(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """The same for headers as ASGI has them, names in lower case."""
    for name, value in headers:
        if name == _HEADER:
            return pressure_in({PRESSURE_HEADER: value.decode("latin-1")})
    return None
