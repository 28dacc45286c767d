"""Answering a streaming client from a backend that doesn't stream: wait, keep the line warm, replay the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from nemo_gym.serve.refusals import anthropic_error, failure_text, refusal_status

KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE_FRAME = ": keep-alive\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Frames = Iterable[str | bytes]


def event_stream(frames: Frames | AsyncIterator[Any]) -> StreamingResponse:
    """Server-sent events as a response, one chunk a frame.

    What is no asynchronous iterator is read to its end first, so that what goes wrong in it raises here.
    """
    parts = frames if isinstance(frames, AsyncIterator) else _each(list(frames))
    return StreamingResponse(parts, media_type="text/event-stream", headers=_HEADERS)


async def _each(frames: list[str | bytes]) -> AsyncIterator[str | bytes]:
    for frame in frames:
        yield frame


async def streamed(answer: Awaitable[Response], failure_frames: Callable[[Exception], Frames]) -> Response:
    """The response `answer` gives, which may take long.

    What fails within 15 seconds raises, so that it keeps its HTTP status. Afterwards the stream is open: it gets a
    comment at once and every 15 seconds, and a failure becomes its last event. A client that leaves cancels the call.
    """
    task = asyncio.ensure_future(answer)
    try:
        await asyncio.wait({task}, timeout=KEEP_ALIVE_SECONDS)
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task.result() if task.done() else event_stream(_late(task, failure_frames))


async def replayed(
    call: Awaitable[Any], frames_of: Callable[[Any], Frames], failure_frames: Callable[[Exception], Frames]
) -> Response:
    """The answer of `call` as an event stream, as `streamed` does it."""

    async def answer() -> Response:
        return event_stream(frames_of(await call))

    return await streamed(answer(), failure_frames)


async def _late(
    task: asyncio.Future[Response], failure_frames: Callable[[Exception], Frames]
) -> AsyncIterator[str | bytes | memoryview]:
    try:
        while not task.done():
            yield KEEP_ALIVE_FRAME
            await asyncio.wait({task}, timeout=KEEP_ALIVE_SECONDS)
        try:
            response = task.result()
            if not isinstance(response, StreamingResponse):
                raise HTTPException(response.status_code, bytes(response.body).decode("utf-8", "replace"))
        except Exception as error:
            for frame in failure_frames(error):
                yield frame
            return
        async for part in response.body_iterator:
            yield part
    finally:
        task.cancel()


def chat_failure_frames(error: Exception) -> list[str]:
    """The error event of a chat completion stream; details only of errors that were meant for the client."""
    status = _status_of(error)
    detail = failure_text(error) if _is_for_clients(error) else "the model server could not answer"
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return [_error_event({"error": {"message": f"HTTP {status}: {detail}", "type": kind, "code": status}})]


def messages_failure_frames(error: Exception) -> list[str]:
    """The error event of a Messages stream; details only of errors that were meant for the client."""
    detail = failure_text(error) if _is_for_clients(error) else "the model server could not answer"
    return [_error_event(anthropic_error(_status_of(error), detail))]


def _error_event(payload: dict[str, Any]) -> str:
    return f"event: error\ndata: {orjson.dumps(payload).decode()}\n\n"


def _is_for_clients(error: Exception) -> bool:
    return isinstance(error, HTTPException) or refusal_status(error) is not None


def _status_of(error: Exception) -> int:
    for name in ("status_code", "status", "refusal_status"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return 500
