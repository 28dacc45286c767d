"""`server_utils.request` against peers that behave and peers that don't."""

from __future__ import annotations

import asyncio
import errno
import pickle
import socket
import sys
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
import orjson
import pytest
from multidict import CIMultiDict
from tqdm import tqdm

from nemo_gym import server_utils
from nemo_gym.schema.endpoint_errors import is_cut_off
from nemo_gym.serve import connections, egress, retries
from nemo_gym.serve.connections import Connecting
from nemo_gym.serve.cookies import cookie_header, set_cookies
from nemo_gym.serve.failures import Cause, ExceptionMiddleware
from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.serve.retries import IDEMPOTENCY_HEADER, Fault, Patience, may_repeat
from nemo_gym.server_utils import (
    GlobalAIOHTTPAsyncClientConfig,
    get_global_aiohttp_client,
    get_response_json,
    raise_for_status,
    request,
    set_global_aiohttp_client,
)
from tests.unit.serve.toys import Connected, call_app, free_socket, http_reply, raw_server, read_request

pytestmark = pytest.mark.usefixtures("fresh_client")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Pauses between tries take no time; gives the list of them."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("nemo_gym.serve.egress.asyncio.sleep", noted)
    yield pauses


class Peer:
    """Plays one scripted act per request and keeps what it was sent.

    Acts: bytes are written; `close` ends the connection without a reply, `reset` does it impolitely.
    """

    def __init__(self, *acts: bytes | str) -> None:
        self.acts = list(acts)
        self.requests: list[bytes] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while message := await read_request(reader):
            self.requests.append(message)
            act = self.acts.pop(0) if self.acts else http_reply()
            if isinstance(act, str):
                if act == "reset":
                    writer.transport.abort()
                break
            writer.write(act)
        writer.close()


async def ask(connected: Connected, method: str = "POST", **options: Any) -> aiohttp.ClientResponse:
    async with raw_server(connected) as port:
        response = await request(method, f"http://127.0.0.1:{port}/x", **options)
        await response.read()
        return response


async def test_sends_json_and_reads_it() -> None:
    peer = Peer(http_reply(b'{"a": [1]}'))
    given = {"X-Mark": "1"}
    response = await ask(peer, json={"q": "ä"}, headers=given)
    assert await get_response_json(response) == {"a": [1]}
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    assert orjson.loads(body) == {"q": "ä"}
    assert b"content-type: application/json" in head.lower() and b"x-mark: 1" in head.lower()
    assert given == {"X-Mark": "1"}


@pytest.mark.parametrize(("json", "body"), [({}, b"{}"), ([], b"[]"), (0, b"0"), (None, b"")])
async def test_empty_json_is_still_json(json: Any, body: bytes) -> None:
    peer = Peer()
    await ask(peer, json=json)
    assert peer.requests[0].partition(b"\r\n\r\n")[2] == body


async def test_any_status_is_an_answer() -> None:
    peer = Peer(http_reply(status="503 Down"))
    assert (await ask(peer)).status == 503
    assert len(peer.requests) == 1


async def test_cookies_are_sent_and_never_kept() -> None:
    peer = Peer(b"HTTP/1.1 200 OK\r\nSet-Cookie: mine=1; path=/\r\nContent-Length: 0\r\n\r\n")
    async with raw_server(peer) as port:
        url = f"http://127.0.0.1:{port}/"
        first = await request("POST", url, cookies={"a": "b", "c": "d e"})
        await request("POST", url)
        await request("POST", url, cookies=first.cookies)
    sent = [cookie_line(message) for message in peer.requests]
    assert sent == [b'a=b; c="d e"', b"", b"mine=1"]


def cookie_line(message: bytes) -> bytes:
    return next((line[8:] for line in message.split(b"\r\n") if line.startswith(b"Cookie: ")), b"")


async def test_given_cookie_headers_are_kept_beside_cookies() -> None:
    peer = Peer()
    await ask(peer, cookies={"a": "b"}, headers={"cookie": "z=1"})
    assert set(cookie_line(peer.requests[0]).split(b"; ")) == {b"a=b", b"z=1"}


# --- what is tried again ----------------------------------------------------------------------------------------------


async def test_nobody_there_is_tried_three_times(impatient: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    egress.faults_seen.clear()
    with free_socket() as sock:
        port = sock.getsockname()[1]
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await request("POST", f"http://127.0.0.1:{port}/x?key=1", json={"a": 1}, _internal=True)
    assert retries.transport_failure_kind(caught.value) == "transport_unreachable"
    assert len(impatient) == 2 and impatient[1] > impatient[0]
    out = capsys.readouterr().out
    assert out.count("transport_unreachable") == 1 and f"127.0.0.1:{port}/x:" in out


async def test_lines_of_requests_stand_above_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """A bar leaves its line open: it is cleared, the line printed, and the bar drawn anew."""
    bar = tqdm(total=5, file=sys.stdout)
    capsys.readouterr()
    egress.say("[request] a line")
    bar.close()
    before, line, _ = capsys.readouterr().out.partition("[request] a line\n")
    assert line and before.endswith("\r") and "%" not in before


@pytest.mark.parametrize("act", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 2OO Okay\r\n\r\n"])
async def test_what_is_no_http_is_a_broken_connection(act: bytes) -> None:
    """A provider, or whatever took its port, that answers nonsense: tried again where that is safe, never our fault."""
    peer = Peer(act, act)
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await ask(peer, method="POST")
    assert retries.transport_failure_kind(caught.value) == "transport_peer_drop"
    assert is_cut_off(caught.value) and len(peer.requests) == 1
    repeated = Peer(act)
    assert (await ask(repeated, method="GET")).status == 200
    assert len(repeated.requests) == 2

    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise caught.value

    _, headers, body = await call_app(ExceptionMiddleware(fails, server_label="Model___policy"), "/x")
    cause = Cause.of_headers(CIMultiDict(headers))
    assert cause is not None and (cause.server, cause.kind) == ("Model___policy", "transport_peer_drop")
    assert b"what came back is no HTTP that can be read" in body and b"AssertionError" not in body


async def test_the_callers_number_of_tries_counts(impatient: list[float]) -> None:
    with free_socket() as sock:
        port = sock.getsockname()[1]
    for tries in (1, 5):
        impatient.clear()
        with pytest.raises(aiohttp.ClientConnectorError):
            await request("GET", f"http://127.0.0.1:{port}", _max_connection_retries=tries)
        assert len(impatient) == tries - 1


@pytest.mark.parametrize("act", ["close", "reset"])
async def test_a_post_that_may_have_had_an_effect_is_not_repeated(act: str) -> None:
    peer = Peer(act)
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)) as caught:
        await ask(peer, json={"a": 1}, _internal=True)
    assert len(peer.requests) == 1
    assert retries.transport_failure_kind(caught.value) == "transport_peer_drop"


@pytest.mark.parametrize("header", [IDEMPOTENCY_HEADER, IDEMPOTENCY_HEADER.lower(), "Idempotency-Key"])
async def test_a_post_with_an_idempotency_key_is_repeated(header: str) -> None:
    peer = Peer("close", "close", http_reply(b"[]"))
    response = await ask(peer, json={"a": 1}, headers={header: "k"})
    assert await response.read() == b"[]"
    assert len(peer.requests) == 3 and len(set(peer.requests)) == 1


async def test_an_answer_read_ahead_is_still_there_for_who_reads_its_stream() -> None:
    body = b"[" + b"1," * 100_000 + b"1]"
    reply = http_reply(body, "200 OK\r\nContent-Type: application/json")
    response = await ask(Peer(reply), json={"a": 1}, headers={IDEMPOTENCY_HEADER: "k"})
    assert await response.content.read(2) == b"[1"
    assert await response.content.read() == body[2:] and response.content.at_eof()
    assert await response.read() == body


async def test_a_get_is_repeated_until_it_is_enough() -> None:
    peer = Peer(*["close"] * 20)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await ask(peer, "GET")
    assert 5 <= len(peer.requests) <= 2 * 5  # aiohttp itself repeats once on reused connections


async def test_a_stale_connection_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_STALE_AFTER_IDLE_SECONDS", 0.0)
    peer = Peer(http_reply(), "close", http_reply(b"[1]"))
    async with raw_server(peer) as port:
        url = f"http://127.0.0.1:{port}/"
        await (await request("POST", url)).read()
        assert await (await request("POST", url)).read() == b"[1]"
    assert peer.connections == 2


async def test_a_busy_connection_that_drops_is_not_stale() -> None:
    peer = Peer(http_reply(), "close")
    async with raw_server(peer) as port:
        url = f"http://127.0.0.1:{port}/"
        await (await request("POST", url)).read()
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await request("POST", url)
    assert len(peer.requests) == 2


async def test_programming_errors_are_raised_at_once(impatient: list[float]) -> None:
    with pytest.raises(TypeError):
        await request("GET", "http://127.0.0.1:1", nonsense=True)
    with pytest.raises(aiohttp.InvalidURL):
        await request("GET", "http://", _internal=True)
    assert impatient == []


async def test_a_timeout_is_raised_for_what_may_have_had_an_effect() -> None:
    peer = Peer()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer.requests.append(await read_request(reader))
        await read_request(reader)
        writer.close()

    with pytest.raises(TimeoutError) as caught:
        await ask(silent, timeout=aiohttp.ClientTimeout(total=0.2))
    assert len(peer.requests) == 1
    assert retries.transport_failure_kind(caught.value) == "transport_timeout"


CONNECTED = Connecting(idle_seconds=None, connected=True, sent_at=0.0)
STALE = Connecting(idle_seconds=5.0, connected=True, sent_at=0.0)
CASES = [
    (Fault.DROPPED, CONNECTED, "POST", {}, 0.1, False),
    (Fault.DROPPED, CONNECTED, "get", {}, 0.1, True),
    (Fault.DROPPED, CONNECTED, "POST", {IDEMPOTENCY_HEADER: "k"}, 0.1, True),
    (Fault.DROPPED, STALE, "POST", {}, 0.1, True),
    (Fault.DROPPED, STALE, "POST", {}, 3.0, False),
    (Fault.DROPPED, Connecting(0.2, True, 0.0), "POST", {}, 0.1, False),
    (Fault.TIMED_OUT, STALE, "POST", {}, 0.1, False),
    (Fault.TIMED_OUT, Connecting(), "POST", {}, 0.1, True),
    (Fault.UNREACHABLE, Connecting(), "POST", {}, 0.1, True),
    (Fault.OUT_OF_RESOURCES, Connecting(), "POST", {}, 0.1, True),
]


@pytest.mark.parametrize(("fault", "attempt", "method", "headers", "now", "answer"), CASES)
def test_what_may_be_repeated(
    fault: Fault, attempt: Connecting, method: str, headers: dict[str, str], now: float, answer: bool
) -> None:
    assert may_repeat(fault, attempt, method, headers, now) is answer


def test_patience_ends_with_the_clock_too() -> None:
    patience = Patience()
    assert patience.pause_after(Fault.DROPPED, 0.0) is not None
    assert patience.pause_after(Fault.DROPPED, 59.0) is not None
    assert patience.pause_after(Fault.DROPPED, 61.0) is None


def test_pauses_differ() -> None:
    assert len({Patience().pause_after(Fault.DROPPED, 0.0) for _ in range(20)}) > 1


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_raise_for_status_keeps_the_body_and_can_be_pickled() -> None:
    response = await ask(Peer(http_reply(b'"why"', "500 Bad")), headers={"A": "b"})
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(response)
    error: Any = pickle.loads(pickle.dumps(caught.value))
    assert (error.status, error.message, error.response_content) == (500, "Bad", b'"why"')
    assert (error.request_info.method, error.request_info.headers["a"]) == ("POST", "b")
    assert str(error.request_info.url).endswith("/x") and error.history == ()


async def test_an_error_holds_no_key_of_its_request() -> None:
    """B99: exceptions are printed, logged, pickled and sent on."""
    names = ("Authorization", "Cookie", "X-API-Key", "api-key", "X-Auth-Token", "Proxy-Authorization")
    headers = {**dict.fromkeys(names, "planted"), "Accept": "text/x"}
    peer = Peer(http_reply(b"why", "401 No\r\nSet-Cookie: a=planted\r\nRetry-After: 7"))
    response = await ask(peer, params={"api_key": "planted", "page": "2"}, headers=headers)
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(response)
    errors: list[Any] = [caught.value, pickle.loads(pickle.dumps(caught.value))]
    for error in errors:
        told = [str(error), repr(error), repr(error.args), repr(error.request_info), repr(error.headers)]
        assert "planted" not in "".join(told) and b"planted" not in pickle.dumps(error)
        assert (error.status, error.message, error.response_content) == (401, "No", b"why")
        assert (error.request_info.headers["accept"], error.headers["retry-after"]) == ("text/x", "7")
        assert error.request_info.url.endswith("?api_key=****&page=2")


@pytest.mark.parametrize("url", ["http://me:planted@127.0.0.1/x", "http://me:planted@127.0.0.1/x?token=planted"])
async def test_an_error_holds_no_user_name_of_its_url(url: str) -> None:
    response = LocalResponse(method="GET", url=url, status=500, raw_headers=[], body=b"")
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(response)  # type: ignore[arg-type]
    assert "planted" not in repr(caught.value) + str(caught.value.request_info)


async def test_raise_for_status_lets_successes_pass_and_takes_a_body_read_before() -> None:
    await raise_for_status(await ask(Peer()))
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(await ask(Peer(http_reply(b"x", "404 No"))), content=b"given")
    assert caught.value.response_content == b"given"  # type: ignore[attr-defined]


# --- the shared client ------------------------------------------------------------------------------------------------


async def test_a_loop_has_one_client_without_limits_of_time() -> None:
    client = get_global_aiohttp_client()
    assert get_global_aiohttp_client() is client is server_utils._GLOBAL_AIOHTTP_CLIENT
    assert client.timeout == aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
    assert isinstance(client.connector, aiohttp.TCPConnector)
    assert (client.connector.limit, client.connector.limit_per_host) == (102_400, 1024)


async def test_every_loop_has_a_client_of_its_own() -> None:
    peer = Peer()
    async with raw_server(peer) as port:
        url = f"http://127.0.0.1:{port}/"
        await (await request("POST", url)).read()

        async def elsewhere() -> bytes:
            reply = await (await request("POST", url)).read()
            await get_global_aiohttp_client().close()
            return reply

        for _ in range(2):
            assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == b"{}"
        assert await (await request("POST", url)).read() == b"{}"
    assert peer.connections == 3


async def test_a_client_somebody_put_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        async def request(self, method: str, url: str, **options: Any) -> Any:
            return (method, url, options["data"])

    monkeypatch.setattr(server_utils, "_GLOBAL_AIOHTTP_CLIENT", Fake())
    answer: Any = await request("PUT", "http://h/", json=[1])
    assert answer == ("PUT", "http://h/", b"[1]")


async def test_settings_come_from_the_global_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"global_aiohttp_connector_limit": 7, "global_aiohttp_client_request_debug": True, "other": 1}
    monkeypatch.setattr(server_utils, "get_global_config_dict", lambda: config)
    connector = get_global_aiohttp_client().connector
    assert connector is not None and connector.limit == 7
    assert server_utils.is_global_aiohttp_client_request_debug_enabled()


async def test_setting_the_client_twice_is_refused() -> None:
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    assert server_utils.is_global_aiohttp_client_setup()
    with pytest.raises(AssertionError):
        set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    await get_global_aiohttp_client().close()
    assert not set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig()).closed


def test_limits_are_shared_by_workers() -> None:
    settings = GlobalAIOHTTPAsyncClientConfig(
        global_aiohttp_connector_limit=10,
        global_aiohttp_connector_limit_per_host=0,
        global_aiohttp_intended_concurrency=10,
    )
    share = settings.for_one_worker(4)
    assert share.global_aiohttp_connector_limit == 2
    assert share.global_aiohttp_connector_limit_per_host == 0
    assert share.global_aiohttp_intended_concurrency == 3
    with pytest.raises(ValueError, match="global_aiohttp_connector_limit is 10"):
        settings.for_one_worker(11)


def test_capacity_is_explained() -> None:
    settings = GlobalAIOHTTPAsyncClientConfig(
        global_aiohttp_connector_limit=5, global_aiohttp_intended_concurrency=10**9
    )
    assert "5 connections" in settings.capacity_line()
    warnings = list(settings.capacity_warnings())
    assert "more than global_aiohttp_connector_limit (5)" in warnings[0]


async def test_connections_are_kept_shorter_than_servers_keep_them() -> None:
    from nemo_gym.serve.uvicorn_server import KEEP_ALIVE_SECONDS as servers

    assert servers > connections.KEEP_ALIVE_SECONDS


async def test_exit_closes_what_other_loops_left() -> None:
    def elsewhere() -> aiohttp.ClientSession:
        async def make() -> aiohttp.ClientSession:
            return get_global_aiohttp_client()

        return asyncio.run(make())

    session = await asyncio.to_thread(elsewhere)
    await asyncio.to_thread(server_utils.global_aiohttp_client_exit)
    assert session.closed and not server_utils.is_global_aiohttp_client_setup()


# --- cookies ----------------------------------------------------------------------------------------------------------


def test_cookies_of_a_response_go_into_the_next_request() -> None:
    cookies = set_cookies(
        [
            (b"set-cookie", b"T___a=eyJ4IjogMX0=.abc-_.sig; path=/; Max-Age=1209600; httponly; samesite=lax"),
            (b"x-other", b"y=1"),
            (b"set-cookie", b'quoted="a b"; path=/'),
            (b"set-cookie", b"gone=x; Max-Age=0"),
            (b"set-cookie", b"nonsense"),
        ]
    )
    assert cookie_header(cookies) == 'T___a=eyJ4IjogMX0=.abc-_.sig; quoted="a b"'
    assert cookies["T___a"]["max-age"] == "1209600" and cookies["T___a"]["httponly"] is True
    assert cookies["quoted"].value == "a b"


def test_plain_headers_are_read_as_the_standard_library_reads_them() -> None:
    header = "a=b=c; Path=/x; Max-Age=3; HttpOnly; SameSite=lax"
    expected = SimpleCookie()
    expected.load(header)
    assert set_cookies([(b"set-cookie", header.encode())]).output() == expected.output()


def test_pairs_and_plain_values() -> None:
    assert cookie_header([("a", "1"), ("b", 'x"y')]) == 'a=1; b="x\\"y"'


# --- what goes wrong, and how it is called ----------------------------------------------------------------------------


async def test_each_way_to_fail_has_its_kind_and_ends(impatient: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """B30: refused, unknown host, dropped, timed out, out of descriptors: told apart, and tried within bounds."""

    async def kind_of(url: str, **options: Any) -> tuple[str | None, int]:
        impatient.clear()
        egress.faults_seen.clear()
        with pytest.raises((aiohttp.ClientError, OSError)) as caught:
            await request("POST", url, json={"a": 1}, **options)
        return retries.transport_failure_kind(caught.value), len(impatient) + 1

    with free_socket() as sock:
        port = sock.getsockname()[1]
    assert await kind_of(f"http://127.0.0.1:{port}") == ("transport_unreachable", 3)
    async with raw_server(Peer("close")) as port:
        assert await kind_of(f"http://127.0.0.1:{port}") == ("transport_peer_drop", 1)
    async with raw_server(silent) as port:
        assert await kind_of(f"http://127.0.0.1:{port}", timeout=0.05) == ("transport_timeout", 1)

    async def unknown_host(self: Any, *_: Any, **__: Any) -> Any:
        raise OSError(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(aiohttp.TCPConnector, "_resolve_host", unknown_host)
    assert await kind_of("http://no.such.host.invalid") == ("transport_unreachable", 3)

    async def no_descriptors(self: Any, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(aiohttp.TCPConnector, "_resolve_host", no_descriptors)
    kind, tries = await kind_of("http://127.0.0.1:9")
    assert kind == "transport_local_resource" and tries == 60


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await read_request(reader):
        pass
    writer.close()
