from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from typing import Any

import itsdangerous
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from starlette.middleware.sessions import SessionMiddleware as StarletteSessionMiddleware

from nemo_gym.serve.sessions import MAX_AGE_SECONDS, SESSION_ID_KEY, SessionMiddleware, signing_key
from tests.unit.serve.toys import call_app

NAME = "Toy___res"
KEY = "secret"


def app_with(middleware: Any, key: str = KEY) -> FastAPI:
    app = FastAPI()

    @app.post("/session")
    async def session(request: Request) -> dict[str, Any]:
        return dict(request.session)

    @app.post("/remember")
    async def remember(request: Request) -> dict[str, Any]:
        request.session.setdefault("seen", []).append("x")
        return dict(request.session)

    @app.post("/nothing")
    async def nothing() -> dict[str, Any]:
        return {}

    app.add_middleware(middleware, secret_key=key, session_cookie=NAME)
    return app


async def post(app: FastAPI, path: str, cookie: str | None = None) -> tuple[Any, str]:
    """The decoded body and the session cookie that came with it."""
    _, headers, body = await call_app(app, path, headers={"cookie": cookie} if cookie else None)
    return json.loads(body), headers["set-cookie"].split(";", 1)[0]


@pytest.fixture
def app() -> FastAPI:
    return app_with(SessionMiddleware)


async def test_every_request_has_a_session_id(app: FastAPI) -> None:
    first, _ = await post(app, "/session")
    second, _ = await post(app, "/session")
    assert len(first[SESSION_ID_KEY]) == 36
    assert first[SESSION_ID_KEY] != second[SESSION_ID_KEY]


async def test_the_cookie_keeps_the_session(app: FastAPI) -> None:
    first, cookie = await post(app, "/session")
    second, _ = await post(app, "/session", f"other=1; {cookie}; Another___thing=abc")
    assert second == first


async def test_every_response_sets_the_cookie_with_upstreams_attributes(app: FastAPI) -> None:
    _, headers, _ = await call_app(app, "/nothing")
    assert headers["set-cookie"].startswith(f"{NAME}=")
    assert headers["set-cookie"].endswith("; path=/; Max-Age=1209600; httponly; samesite=lax")


async def test_an_unchanged_session_is_sent_back_as_it_came(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cookie = await post(app, "/session")
    monkeypatch.setattr(itsdangerous.TimestampSigner, "sign", lambda *_: pytest.fail("signed again"))
    assert (await post(app, "/session", cookie))[1] == cookie


async def test_changes_deep_in_a_session_are_kept(app: FastAPI) -> None:
    _, cookie = await post(app, "/remember")
    _, cookie = await post(app, "/remember", cookie)
    session, _ = await post(app, "/session", cookie)
    assert session["seen"] == ["x", "x"]


@pytest.mark.parametrize("spoil", [lambda cookie: cookie[:-2] + "xx", lambda _: f"{NAME}=x.y.z", lambda _: f"{NAME}="])
async def test_a_forged_cookie_opens_a_new_session(app: FastAPI, spoil: Any) -> None:
    first, cookie = await post(app, "/session")
    second, _ = await post(app, "/session", spoil(cookie))
    assert second[SESSION_ID_KEY] != first[SESSION_ID_KEY]


async def test_a_cookie_of_another_key_is_not_believed(app: FastAPI) -> None:
    first, cookie = await post(app_with(SessionMiddleware, "another"), "/session")
    second, _ = await post(app, "/session", cookie)
    assert second[SESSION_ID_KEY] != first[SESSION_ID_KEY]


async def test_signed_nonsense_opens_a_new_session(app: FastAPI) -> None:
    signed = itsdangerous.TimestampSigner(KEY).sign(b64encode(b"[1]")).decode()
    session, _ = await post(app, "/session", f"{NAME}={signed}")
    assert len(session[SESSION_ID_KEY]) == 36


async def test_cookies_expire(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    first, cookie = await post(app, "/session")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + MAX_AGE_SECONDS + 1)
    assert (await post(app, "/session", cookie))[0] != first


async def test_a_session_in_use_does_not_expire(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    first, cookie = await post(app, "/session")
    now = time.time()
    for age in (0.6, 1.2, 1.8):
        monkeypatch.setattr(time, "time", lambda age=age: now + MAX_AGE_SECONDS * age)
        session, cookie = await post(app, "/session", cookie)
        assert session == first


async def test_starlette_reads_our_cookies_and_we_read_its(app: FastAPI) -> None:
    theirs = app_with(StarletteSessionMiddleware)
    first, cookie = await post(app, "/session")
    assert (await post(app_with(StarletteSessionMiddleware), "/remember", cookie))[0][SESSION_ID_KEY] == first[
        "session_id"
    ]
    _, cookie = await post(theirs, "/remember")
    assert (await post(app, "/session", cookie))[0]["seen"] == ["x"]


async def test_large_cookies_are_not_kept_in_memory() -> None:
    middleware = SessionMiddleware(FastAPI(), secret_key=KEY, session_cookie=NAME)
    for size in (100, 5_000):
        await call_app(middleware, "/", headers={"cookie": f"{NAME}={'x' * size}"})
    assert middleware._remembered.cache_info().currsize == 1


async def test_a_large_session_is_still_a_session(app: FastAPI) -> None:
    payload = b64encode(json.dumps({SESSION_ID_KEY: "mine", "seen": ["x" * 8_000]}).encode())
    cookie = f"{NAME}={itsdangerous.TimestampSigner(KEY).sign(payload).decode()}"
    assert (await post(app, "/session", cookie))[0][SESSION_ID_KEY] == "mine"


def test_clients_with_a_cookie_jar_stay_in_their_session(app: FastAPI) -> None:
    client = TestClient(app)
    assert client.post("/session").json() == client.post("/session").json()


def test_the_key_follows_from_the_runs_token_and_the_name() -> None:
    assert signing_key("a", "token") == signing_key("a", "token")
    assert len({signing_key("a", "token"), signing_key("b", "token"), signing_key("a", "other"), "token"}) == 4


def test_without_a_token_the_key_is_random_but_stable_in_the_process() -> None:
    assert signing_key("a", None) == signing_key("a", None)
    assert signing_key("a", None) != signing_key("a", "")[::-1]


def test_the_payload_is_readable_json() -> None:
    cookie = TestClient(app_with(SessionMiddleware)).post("/session").cookies[NAME]
    assert set(json.loads(b64decode(cookie.split(".")[0]))) == {SESSION_ID_KEY}
