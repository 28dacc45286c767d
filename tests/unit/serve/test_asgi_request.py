"""What aiohttp's options become for an app of this process."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientTimeout

from nemo_gym.serve.asgi_request import asgi_request
from nemo_gym.serve.deadline import DEADLINE_HEADER, DeadlineExceededError, call_limit, deadline

HOST = b"127.0.0.1:1"


def headers_of(**options: Any) -> list[tuple[bytes, bytes]]:
    return asgi_request(options, HOST)[1]


def values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for known, value in headers if known == name]


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({}, b""),
        ({"data": "ä"}, "ä".encode()),
        ({"data": bytearray(b"ab")}, b"ab"),
        ({"json": {"a": [1, None]}}, b'{"a":[1,null]}'),
        ({"json": None, "data": b"x"}, b"x"),
    ],
)
def test_the_body_and_its_length(options: dict[str, Any], body: bytes) -> None:
    found, headers, _ = asgi_request(options, HOST)
    assert found == body
    assert values(headers, b"content-length") == [b"%d" % len(body)]
    kinds = [] if options.get("json") is None else [b"application/json"]
    assert values(headers, b"content-type") == kinds


def test_json_says_what_it_is_whatever_was_given() -> None:
    headers = headers_of(json={}, headers={"Content-Type": "text/plain", "X-A": "1"})
    assert values(headers, b"content-type") == [b"application/json"]
    assert values(headers, b"x-a") == [b"1"]
    assert values(headers_of(data=b"a", headers=[("content-TYPE", "text/plain")]), b"content-type") == [b"text/plain"]


def test_the_host_is_the_server_s_unless_one_is_given() -> None:
    assert values(headers_of(), b"host") == [HOST]
    assert values(headers_of(headers={"Host": "elsewhere"}), b"host") == [b"elsewhere"]


def test_cookies_come_after_those_of_a_header() -> None:
    assert values(headers_of(cookies={"b": "2", "c": "3"}), b"cookie") == [b"b=2; c=3"]
    both = headers_of(headers={"cookie": "a=1"}, cookies={"b": "2"})
    assert values(both, b"cookie") == [b"a=1; b=2"]
    assert values(headers_of(cookies={}), b"cookie") == []


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, None), (0, None), (7, 7), (ClientTimeout(total=8), 8), (ClientTimeout(), None)]
)
def test_the_time_it_may_take(timeout: Any, seconds: float | None) -> None:
    assert asgi_request({"timeout": timeout}, HOST)[2] == seconds


def test_the_limit_of_its_stage_holds_unless_it_has_one_of_its_own() -> None:
    token = call_limit.set(ClientTimeout(total=3))
    try:
        assert asgi_request({}, HOST)[2] == 3
        assert asgi_request({"timeout": 9}, HOST)[2] == 9
        assert asgi_request({"timeout": None}, HOST)[2] is None
    finally:
        call_limit.reset(token)


def test_it_ends_with_the_deadline_and_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("nemo_gym.serve.deadline.time.monotonic", lambda: now[0])
    name = DEADLINE_HEADER.lower().encode()
    with deadline(100):
        _, headers, seconds = asgi_request({"headers": {DEADLINE_HEADER: "900"}}, HOST)
        assert seconds == 100
        assert values(headers, name) == [b"99.500"]
        assert asgi_request({"timeout": 5}, HOST)[2] == 5
        assert asgi_request({"timeout": 500}, HOST)[2] == 100
        now[0] += 100
        with pytest.raises(DeadlineExceededError):
            asgi_request({}, HOST)
    assert values(headers_of(), name) == []
