"""Request bodies: read whole, and how deep they may be."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

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


_STEPS = {ord(b"["): 1, ord(b"{"): 1, ord(b"]"): -1, ord(b"}"): -1}
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in _STEPS)


def check_nesting(raw: bytes, value: Any) -> None:
    """Raise RequestValidationError when a decoded body is nested deeper than MAX_NESTING.

    Brackets are counted first, which is quick; a suspicious count is verified, since strings hold brackets too. A text
    that hides its depth behind closing brackets in strings passes and is left to the parsers' own limits.
    """
    brackets = raw.translate(None, _OTHER_BYTES)
    if len(brackets) <= MAX_NESTING or max(accumulate(map(_STEPS.__getitem__, brackets))) <= MAX_NESTING:
        return
    if _depth(value) > MAX_NESTING:
        message = f"Nested deeper than {MAX_NESTING} levels"
        error = {"type": "recursion_loop", "loc": ("body",), "msg": message, "input": {}}
        raise RequestValidationError([error], body=None)


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
