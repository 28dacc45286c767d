"""B100: what a web page in the user's browser can make it send is refused, on every route and by every method."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Message

from nemo_gym.serve.guards import HostGuard
from tests.security.kinds import KINDS, Kind, kind, paths_of, served
from tests.unit.serve.toys import call_app

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
FOREIGN_HOSTS = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "0.0.0.0", "10.1.2.3", "localhost@evil")
FOREIGN_ORIGINS = (
    "http://evil.example",
    "https://evil.example:443",
    "null",
    "http://127.0.0.1.evil.example",
    "file://",
)
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "text/plain;x=json")
USUAL = {"/", "/health", "/docs", "/openapi.json", "/redoc"}


def all_paths(one: Kind) -> set[str]:
    found = {*paths_of(one.app), *one.valid, "/nowhere", "/mcp", "/mcp/x", "/docs", "/openapi.json", "/redoc"}
    assert len(found) > 8
    return found


@pytest.mark.parametrize("name", KINDS)
async def test_every_route_and_method_looks_at_host_and_origin(name: str) -> None:
    one = kind(name)
    for path in all_paths(one):
        for method in METHODS:
            for host in FOREIGN_HOSTS:
                status, _, _ = await call_app(one.app, path, method=method, headers={"host": host})
                assert status == 421, (method, path, host)
            for origin in FOREIGN_ORIGINS:
                headers = {"host": "127.0.0.1", "origin": origin}
                status, answered, _ = await call_app(one.app, path, method=method, headers=headers)
                assert status == 403, (method, path, origin)
                assert not any(header.startswith("access-control") for header in answered)


@pytest.mark.parametrize("name", ["resources", "agent", "model", "environment"])
async def test_routes_that_change_something_take_no_forms(name: str) -> None:
    """A form is what a page may send anywhere without being asked."""
    async with served(name) as (one, client):
        for path, valid in one.valid.items():
            body = client.build_request("POST", path, json=valid).content
            for content_type in FORM_TYPES:
                reply = await client.post(path, content=body, headers={"content-type": content_type})
                assert 400 <= reply.status_code < 500, (path, content_type, reply.text)
            request = client.build_request("POST", path, content=body)
            del request.headers["content-type"]
            assert 400 <= (await client.send(request)).status_code < 500, path


@pytest.mark.parametrize("name", KINDS)
async def test_own_requests_are_answered(name: str) -> None:
    async with served(name) as (one, client):
        assert (await client.get(one.alive)).status_code == 200
        assert (await client.get(one.alive, headers={"origin": "http://localhost:3000"})).status_code == 200
        assert (await client.get(one.alive, headers={"host": f"localhost:{client.base_url.port}"})).status_code == 200


async def test_other_methods_are_no_way_to_a_handler() -> None:
    """CVE-2026-27482's kind: a list of methods in which one was forgotten."""
    for name in KINDS:
        async with served(name) as (one, client):
            for path, valid in one.valid.items():
                for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
                    reply = await client.request(method, path, json=valid)
                    assert reply.status_code in (400, 405), (name, method, path)


async def test_a_foreign_handshake_for_a_websocket_is_closed() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("the handshake went through")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    for headers in ([(b"host", b"evil.example")], [(b"host", b"localhost"), (b"origin", b"http://evil.example")]):
        sent.clear()
        await HostGuard(app)({"type": "websocket", "headers": headers}, receive, send)
        assert [message["type"] for message in sent] == ["websocket.close"]
