"""Answering a streaming client from a backend that doesn't stream: wait, keep the line warm, replay the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import orjson
from fastapi import HTTPException
from starlette.responses import StreamingResponse

KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE_FRAME = ": keep-alive\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Frames = Iterable[str | bytes]


def event_stream(frames: Frames | AsyncIterator[str]) -> StreamingResponse:
    """Server-sent events as a response."""
    return StreamingResponse(frames, media_type="text/event-stream", headers=_HEADERS)


async def replayed(
    call: Awaitable[Any], frames_of: Callable[[Any], Frames], failure_frames: Callable[[Exception], Frames]
) -> StreamingResponse:
    """The answer of `call` as an event stream.

    What fails within 15 seconds raises, so that it keeps its HTTP status. Afterwards the stream is open: it gets a
    comment at once and every 15 seconds, and a failure becomes its last event. A client that leaves cancels the call.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task}, timeout=KEEP_ALIVE_SECONDS)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.done():
        return event_stream(frames_of(task.result()))
    return event_stream(_late(task, frames_of, failure_frames))


async def _late(
    task: asyncio.Future[Any], frames_of: Callable[[Any], Frames], failure_frames: Callable[[Exception], Frames]
) -> AsyncIterator[Any]:
    try:
        while not task.done():
            yield KEEP_ALIVE_FRAME
            await asyncio.wait({task}, timeout=KEEP_ALIVE_SECONDS)
        try:
            frames = frames_of(task.result())
        except Exception as error:
            frames = failure_frames(error)
        for frame in frames:
            yield frame
    finally:
        task.cancel()


def chat_failure_frames(error: Exception) -> list[str]:
    """The error event of a chat completion stream; details only of errors that were meant for the client."""
    status = _status_of(error)
    detail = str(error.detail) if isinstance(error, HTTPException) else "the model server could not answer"
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    payload = {"error": {"message": f"HTTP {status}: {detail}", "type": kind, "code": status}}
    return [f"event: error\ndata: {orjson.dumps(payload).decode()}\n\n"]


def _status_of(error: Exception) -> int:
    for name in ("status_code", "status"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return 500
