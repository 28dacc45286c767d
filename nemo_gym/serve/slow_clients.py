"""Clients that begin a request and don't go on: each holds a connection, a descriptor and maybe a handler."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, Field
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

READ_TIMEOUT_SECONDS = 60.0
MAX_HEAD_BYTES = 1 << 18


class UvicornTimeoutsConfig(BaseModel):
    """Seconds in which the head of a request must be there, and in which more of its body must come; 0 waits on."""

    uvicorn_timeout_request_read: float = Field(default=READ_TIMEOUT_SECONDS, ge=0, allow_inf_nan=False)


class PatientProtocol(HttpToolsProtocol):
    """Gives up on a request whose head takes too long or is too large, or whose body stops coming: 408 or 431.

    A body that we don't read on, since nobody here has asked for so much of it, is not late.
    """

    def __init__(self, *args: Any, read_timeout: float = READ_TIMEOUT_SECONDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_timeout = read_timeout
        self._read_timer: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._is_in_body = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes = self._head_bytes + len(data) if was_in_head else len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._give_up(431)
            elif self._read_timer is None:
                self._start_timer()
        elif self._is_in_body:
            self._stop_timer()
            self._start_timer()
        else:
            self._stop_timer()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._is_in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._is_in_head = self._is_in_body = False
        super().handle_websocket_upgrade()

    def _start_timer(self) -> None:
        if self._read_timeout and not self.transport.is_closing():
            self._read_timer = self.loop.call_later(self._read_timeout, self._is_late)

    def _stop_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _is_late(self) -> None:
        self._read_timer = None
        if self._is_in_body and self.flow.read_paused:
            self._start_timer()  # we are the ones who don't read
        elif self._is_in_head or self._is_in_body:
            self._give_up(408)
        else:
            self.transport.close()

    def _has_answered(self) -> bool:
        """Whether an answer would come between parts of another, or after that to the same request."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and (cycle.response_started if self._is_in_body else not cycle.response_complete)

    def _give_up(self, status: int) -> None:
        """Answer, unless an answer is under way, and hang up; a handler that waits for the body learns that."""
        self._stop_timer()
        if not self._has_answered() and not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
