"""Hostile bodies at every route of every kind of server: refused in order, and the server goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.security.kinds import KINDS, Kind, served
from tests.spoiling import spoiled

BODIES_PER_ROUTE = 120

RAW: tuple[bytes, ...] = (
    b"",
    b" ",
    b"{",
    b"}",
    b"null",
    b"true",
    b"17",
    b"-0",
    b"1e400",
    b'"text"',
    b"[]",
    b"[{}]",
    b"NaN",
    b"{'a': 1}",
    b'{"a": 1,}',
    b"\x00",
    b"\xff\xfe{}",
    b'{"a": "\xff"}',
    b"\xef\xbb\xbf{}",
    '{"a": "text"}'.encode("utf-16"),
    b"[" * 100_000,
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    b"[" * 251 + b"]" * 251,
    b'{"a": ' + b"9" * 5_000 + b"}",
    b'{"a": 1e999, "b": NaN, "c": Infinity}',
    b'{"a": "\\ud800", "\\udfff": 1}',
    b"a=1&b=2",
    b"<x/>",
    b'{"a": 1} {"a": 2}',
    b'{"a": 1, "a": {}}',
    b"{" + b",".join(b'"k%d": 1' % number for number in range(20_000)) + b"}",
)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    2**70,
    1e308,
    float("nan"),
    float("-inf"),
    "",
    "\ud800",
    "\x00",
    "x" * 70_000,
    "../../verify",
    "{0.__class__}",
    [],
    [[]],
    [None],
    [{}] * 300,
    {},
    {"": 0},
    {"__proto__": {}},
    {"type": "function_call"},
)


ADDED = ("_ng_rollout_id", "_ng_task_index", "stream", "model", "x")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


def hostile_bodies(valid: dict[str, Any], seed: str) -> Iterator[bytes]:
    rng = random.Random(seed)
    yield from RAW
    for _ in range(BODIES_PER_ROUTE - len(RAW)):
        yield spoiled(valid, rng, ODD, most=4, nested=nested, added=ADDED)


async def is_well(kind: Kind, client: httpx.AsyncClient) -> None:
    assert (await client.get(kind.alive)).status_code == 200
    name = uuid4().hex
    for path, valid in kind.valid.items():
        client.cookies.clear()
        body = {**valid, "agent_session_id": name} if "agent_session_id" in valid else valid
        reply = await client.post(path, json=body)
        assert reply.status_code == 200, (path, reply.text)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "head"])
async def test_hostile_bodies_are_refused_and_harm_nothing(name: str) -> None:
    async with served(name) as (kind, client):
        await is_well(kind, client)
        for path, valid in kind.valid.items():
            for body in hostile_bodies(valid, path):
                client.cookies.clear()
                reply = await client.post(path, content=body)
                assert reply.status_code < 500, (path, body[:300], reply.status_code, reply.text[:500])
                assert "Traceback" not in reply.text and 'File "' not in reply.text
                assert len(reply.content) < 3 * len(body) + 20_000
        await is_well(kind, client)


@pytest.mark.parametrize("name", KINDS)
async def test_requests_that_are_no_requests_harm_nothing(name: str) -> None:
    async with served(name) as (kind, client):
        for path in ("//", "/%00", "/%ff", "/..%2f..%2fetc/passwd", "/" + "a" * 60_000, "/ng-rollout/%2e%2e/verify"):
            for method in ("GET", "POST", "DELETE", "PUT", "OPTIONS", "PATCH", "HEAD", "TRACE"):
                reply = await client.request(method, path, content=b"[" * 1000)
                assert reply.status_code < 500, (method, path[:50], reply.text[:500])
                assert reply.status_code >= 400 or path == "//", (method, path[:50], reply.text[:500])
        await is_well(kind, client)
