from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import orjson
import pytest
from aiohttp import ClientConnectorError, ClientResponseError, RequestInfo, ServerDisconnectedError
from multidict import CIMultiDict, CIMultiDictProxy
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from nemo_gym.serve import redaction
from nemo_gym.serve.failures import CAUSE_HEADER, Cause, ExceptionMiddleware
from tests.unit.serve.toys import call_app

LABEL = "Toy___res"


def failing(error: BaseException) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    return ExceptionMiddleware(app, server_label=LABEL)


async def answer(error: BaseException) -> tuple[int, Any, Cause | None]:
    status, headers, body = await call_app(failing(error), "/x")
    assert headers["content-type"] == "application/json"
    return status, json.loads(body), Cause.of_headers(CIMultiDict(headers))


def response_error(content: bytes | None, *, headers: dict[str, str] | None = None) -> ClientResponseError:
    info = RequestInfo(
        URL("http://127.0.0.1:9/verify?key=abc"), "POST", CIMultiDictProxy(CIMultiDict()), URL("http://a")
    )
    error = ClientResponseError(info, (), status=503, message="no", headers=CIMultiDict(headers or {}))
    if content is not None:
        error.response_content = content  # type: ignore[attr-defined]
    return error


async def test_an_exception_is_answered_with_its_repr(capsys: pytest.CaptureFixture[str]) -> None:
    status, text, cause = await answer(ValueError("boom"))
    assert (status, text) == (500, "ValueError('boom')")
    assert cause == Cause(LABEL, "ValueError", "ValueError('boom')")
    assert "Traceback" in capsys.readouterr().err


async def test_a_peer_that_went_away_is_one_line_without_a_traceback(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, logger="nemo_gym.server_utils"):
        status, text, cause = await answer(ServerDisconnectedError())
    assert (status, text) == (500, "ServerDisconnectedError('Server disconnected')")
    assert cause is not None and cause.message == "ServerDisconnectedError: Server disconnected"
    assert caplog.messages == [f"{LABEL}: ServerDisconnectedError: Server disconnected"]
    assert "Traceback" not in capsys.readouterr().err


async def test_an_error_of_another_server_is_named_with_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="nemo_gym.server_utils"):
        status, text, cause = await answer(response_error(b"x" * 3000))
    assert status == 500
    assert text == f"{LABEL}: POST http://127.0.0.1:9/verify answered 503: " + "x" * 3000
    assert cause is not None and (cause.server, cause.status) == (LABEL, 503)
    (line,) = caplog.messages
    assert line.startswith(f"{LABEL}: POST http://127.0.0.1:9/verify answered 503: xxx")
    assert "key=abc" not in line and len(line) < 2200


async def test_a_chain_of_servers_piles_up_no_escapes_and_keeps_the_first_cause() -> None:
    _, headers, body = await call_app(failing(ValueError('a "quoted" word')), "/x")
    middle = response_error(body, headers=headers)
    _, headers, body = await call_app(failing(middle), "/x")
    _, text, cause = await answer(response_error(body, headers=headers))
    assert text.endswith("""ValueError('a "quoted" word')""")
    assert text.count(LABEL) == 2 and "\\" not in text
    assert cause == Cause(LABEL, "ValueError", """ValueError('a "quoted" word')""")


async def test_an_answer_without_its_body_is_a_programmers_error() -> None:
    status, text, _ = await answer(response_error(None))
    assert status == 500 and text.startswith("AssertionError(") and "raise_for_status" in text


async def test_a_cancelled_handler_says_so() -> None:
    status, text, _ = await answer(asyncio.CancelledError())
    assert status == 500 and "cancelled" in text


async def test_a_client_that_hung_up_is_no_failure_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert (await answer(ClientDisconnect()))[1] == "The client disconnected."
    assert capsys.readouterr().err == ""


async def test_what_is_no_exception_tells_nothing() -> None:
    assert (await answer(SystemExit("secret")))[:2] == (500, "An unknown error occurred.")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerDisconnectedError(), "transport_peer_drop"),
        (TimeoutError(), "transport_timeout"),
        (OSError(24, "too many files"), "transport_local_resource"),
        (ClientConnectorError(MagicMock(), OSError(111, "refused")), "transport_unreachable"),
        (KeyError("x"), None),
    ],
)
async def test_causes_name_the_transports_failure(error: Exception, kind: str | None) -> None:
    _, _, cause = await answer(error)
    assert cause is not None and cause.kind == kind


async def test_long_answers_and_causes_are_cut() -> None:
    _, text, cause = await answer(ValueError("y" * 100_000))
    assert len(text) < 21_000 and "more characters" in text
    assert cause is not None and len(cause.message) == 500


async def test_text_that_is_no_unicode_is_still_answered() -> None:
    status, text, _ = await answer(RuntimeError("\ud800"))
    assert status == 500 and text.startswith("RuntimeError(")


async def test_a_reply_that_has_begun_is_not_begun_again() -> None:
    async def half(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("late")

    status, _, body = await call_app(ExceptionMiddleware(half, server_label=LABEL), "/x")
    assert (status, body) == (200, b"")


@pytest.fixture
def redactor() -> Iterator[None]:
    redaction.install(lambda text: text.replace("hunter22", "****"))
    yield
    redaction.install(None)


async def test_secrets_are_masked(redactor: None) -> None:
    _, text, cause = await answer(ValueError("password hunter22"))
    assert "hunter22" not in text and cause is not None and "hunter22" not in cause.message


@pytest.mark.parametrize("header", [None, "{", "[]", "{}", '{"server": "a"}', "7"])
def test_a_header_that_is_no_cause_is_ignored(header: str | None) -> None:
    assert Cause.of_headers(CIMultiDict({CAUSE_HEADER: header} if header else {})) is None


def test_a_cause_travels_as_ascii() -> None:
    cause = Cause("s", "E", "später\n", kind="k")
    text = cause.header().decode("ascii")
    assert "\n" not in text and orjson.loads(text) == {"server": "s", "error": "E", "message": "später\n", "kind": "k"}
    assert Cause.of_headers({CAUSE_HEADER: text}) == cause
