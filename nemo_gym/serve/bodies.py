"""Request bodies: read whole, and how deep they may be."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

MAX_NESTING = 200
"""Levels of arrays and objects; what is deeper can't be encoded again by orjson (254)."""


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request. ClientDisconnect when its client hangs up before the end."""
    message = await receive()
    chunks: list[bytes] = []
    while message["type"] == "http.request":
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        message = await receive()
    raise ClientDisconnect


def again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body already read, then goes on with the given one."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return unread.pop() if unread else await receive()

    return receive_again


_STEPS = {ord(b"["): 1, ord(b"{"): 1, ord(b"]"): -1, ord(b"}"): -1}
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in _STEPS and byte != ord(b'"'))


def check_nesting(raw: bytes, value: Any) -> None:
    """Raise RequestValidationError when a decoded body is nested deeper than MAX_NESTING.

    `raw` is its JSON text, in which counting is quicker than walking through `value`.
    """
    marks = raw.translate(None, _OTHER_BYTES)
    if marks.count(b"[") + marks.count(b"{") <= MAX_NESTING:
        return
    if b"\\" in raw:  # an escaped quotation mark ends no string
        marks = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHER_BYTES)
    depth = _depth(value) if b"\0" in raw else _depth_of_marks(marks)  # there are zeros in UTF-16
    if depth > MAX_NESTING:
        message = f"Nested deeper than {MAX_NESTING} levels"
        error = {"type": "recursion_loop", "loc": ("body",), "msg": message, "input": {}}
        raise RequestValidationError([error], body=None)


def _depth_of_marks(marks: bytes) -> int:
    """How deep a JSON text is of which only brackets and quotation marks are left: brackets in strings don't count."""
    between_strings = b"".join(marks.split(b'"')[::2])
    return max(accumulate(map(_STEPS.__getitem__, between_strings)), default=0)


def _depth(value: Any) -> int:
    depth, level = 0, _containers([value])
    while level:
        level = [inner for container in level for inner in _containers(_items(container))]
        depth += 1
    return depth


def _containers(values: list[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _items(container: dict[str, Any] | list[Any]) -> list[Any]:
    return list(container.values()) if isinstance(container, dict) else container
