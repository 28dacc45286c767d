"""The client for model backends: retries, shared quiet, trips."""

import asyncio
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientPayloadError, ClientResponseError, ServerDisconnectedError, web
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict
from pydantic import ValidationError

from nemo_gym import openai_utils, server_utils
from nemo_gym.errors import GymError
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymResponse, PermanentEndpointError, checked_answer
from nemo_gym.schema import backend_client, backend_endpoint
from nemo_gym.schema.backend_answers import is_context_overflow, retry_after_seconds, without_userinfo
from nemo_gym.serve.refusals import refusal_status

URL = "http://backend/v1"


@dataclass
class Answer:
    """What aiohttp's response looks like to us."""

    status: int = 200
    body: Any = field(default_factory=lambda: {"ok": True})
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)

    @property
    def ok(self) -> bool:
        return self.status < 400

    async def read(self) -> bytes:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    def raise_for_status(self) -> None:
        if not self.ok:
            request: Any = type("Info", (), {"url": URL, "method": "POST", "headers": {}, "real_url": URL})()
            raise ClientResponseError(request, (), status=self.status, message="no", headers=self.headers)


def error(status: int, code: str = "", text: str = "no", **headers: str) -> Answer:
    return Answer(status, {"error": {"message": text, "code": code}}, CIMultiDict(headers))


class Backend:
    """A backend that answers from a script, on a clock that only moves when somebody waits."""

    def __init__(self) -> None:
        self.script: list[Answer | Exception] = []
        self.requests: list[dict[str, Any]] = []
        self.pauses: list[float] = []
        self.time = 0.0

    async def request(self, **kwargs: Any) -> Answer:
        self.requests.append(kwargs)
        answer = self.script.pop(0) if self.script else Answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def now(self) -> float:
        return self.time


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    found = Backend()
    monkeypatch.setattr(openai_utils, "request", found.request)
    monkeypatch.setattr(backend_client, "sleep", found.sleep)
    monkeypatch.setattr(backend_endpoint, "now", found.now)
    return found


def client(**fields: Any) -> NeMoGymAsyncOpenAI:
    return NeMoGymAsyncOpenAI(**{"base_url": URL, "api_key": "sk-secret", **fields})


async def status_of(call: Any) -> int:
    with pytest.raises(ClientResponseError) as caught:
        await call
    return caught.value.status


@pytest.mark.parametrize(
    ("call", "method", "url", "body"),
    [
        (lambda c: c.create_models(), "GET", "http://backend/v1/models", None),
        (lambda c: c.create_chat_completion(a=1), "POST", "http://backend/v1/chat/completions", {"a": 1}),
        (lambda c: c.create_completion(a=1), "POST", "http://backend/v1/completions", {"a": 1}),
        (lambda c: c.create_response(a=1), "POST", "http://backend/v1/responses", {"a": 1}),
        (lambda c: c.create_tokenize(a=1), "POST", "http://backend/tokenize", {"a": 1}),
    ],
)
@pytest.mark.parametrize("base_url", [URL, f"{URL}/"])
async def test_routes(
    backend: Backend, call: Callable[[Any], Any], method: str, url: str, body: Any, base_url: str
) -> None:
    assert await call(client(base_url=base_url)) == {"ok": True}

    (sent,) = backend.requests
    assert (sent["method"], sent["url"], sent.get("json")) == (method, url, body)


async def test_headers_and_settings_are_handed_on(backend: Backend) -> None:
    talker = client(
        default_headers={"A": "default", "B": "default", "Authorization": "default"},
        internal=True,
        max_connection_retries=4,
    )

    await talker._request(method="GET", url=URL, headers={"B": "call"})

    (sent,) = backend.requests
    assert sent["headers"] == {"A": "default", "B": "call", "Authorization": "Bearer sk-secret"}
    assert (sent["_internal"], sent["_max_connection_retries"]) == (True, 4)


def test_at_least_one_attempt() -> None:
    with pytest.raises(ValidationError):
        client(max_http_attempts=0)


@pytest.mark.parametrize("status", [429, 502, 503, 504, 520, 408, 500])
async def test_passing_errors_are_tried_again(backend: Backend, status: int, capsys: Any) -> None:
    backend.script = [error(status, text="x" * 300), error(status)]

    assert await client().create_models() == {"ok": True}

    kind = "http_error" if status in (408, 500) else "rate_limit"
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"[model_retry url={URL}/models status={status} kind={kind} try=1 max_tries=3 error_msg=")
    assert len(first) < 350 and first.endswith("]")
    assert "try=2 max_tries=3" in second


@pytest.mark.parametrize("status", [429, 500])
async def test_the_last_error_is_raised_with_its_body(backend: Backend, status: int) -> None:
    backend.script = [error(status, text=str(number)) for number in range(5)]

    with pytest.raises(ClientResponseError) as caught:
        await client(max_http_attempts=2).create_models()

    assert caught.value.status == status
    assert b'"message": "1"' in caught.value.response_content  # type: ignore[attr-defined]
    assert len(backend.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 422, 501])
async def test_other_errors_are_raised_at_once(backend: Backend, status: int) -> None:
    backend.script = [error(status)]

    assert await status_of(client().create_models()) == status
    assert len(backend.requests) == 1


@pytest.mark.parametrize("attempts", [1, 5])
async def test_not_found_is_tried_again_once_at_most(backend: Backend, attempts: int) -> None:
    backend.script = [error(404)] * 5

    assert await status_of(client(max_http_attempts=attempts).create_models()) == 404
    assert len(backend.requests) == min(attempts, 2)


async def test_pauses_grow_with_jitter(backend: Backend) -> None:
    backend.script = [error(500)] * 7

    await client(max_http_attempts=8).create_models()

    limits = [0.5, 1, 2, 4, 8, 16, 30]
    assert len(backend.pauses) == len(limits)
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(backend.pauses, limits, strict=True))


@pytest.mark.parametrize("status", [429, 500])
async def test_retry_after_is_honoured(backend: Backend, status: int) -> None:
    backend.script = [error(status, **{"Retry-After": "7"})]

    await client().create_models()

    assert 7 <= backend.time <= 7.7


async def test_a_longer_wait_than_there_is_time_for_is_an_error_now(backend: Backend) -> None:
    backend.script = [error(429, **{"Retry-After": "3600"})]

    assert await status_of(client().create_models()) == 429
    assert backend.time == 0


async def test_all_clients_of_a_backend_keep_quiet_together(backend: Backend) -> None:
    backend.script = [error(429, **{"Retry-After": "20"})]
    assert await status_of(client(max_http_attempts=1).create_models()) == 429
    assert backend.time == 0

    await client(api_key="other").create_models()
    await client(base_url="http://other/v1").create_models()
    assert backend.time == 0

    await client().create_models()
    assert 20 <= backend.time <= 22

    await client().create_models()
    assert backend.time <= 22


async def test_nobody_is_kept_waiting_for_ever(backend: Backend) -> None:
    backend.script = [error(429, **{"Retry-After": "3600"})]
    await status_of(client().create_models())

    assert await client().create_models() == {"ok": True}
    waited = backend.time
    assert await client().create_models() == {"ok": True}
    assert 120 <= waited == backend.time <= 133


async def test_an_internal_backend_may_be_busy_for_long_but_not_for_ever(backend: Backend) -> None:
    backend.script = [error(503)] * 10
    assert await client(internal=True).create_models() == {"ok": True}

    backend.script = [error(503)] * 1000
    assert await status_of(client(internal=True).create_models()) == 503
    assert 400 < backend.time < 1000


async def test_an_internal_backend_that_fails_is_not_busy(backend: Backend) -> None:
    backend.script = [error(500)] * 5

    assert await status_of(client(internal=True).create_models()) == 500
    assert len(backend.requests) == 3


@pytest.mark.parametrize("cut", [ServerDisconnectedError(), ClientPayloadError(), Answer(body=ClientPayloadError())])
async def test_an_answer_that_breaks_off_is_asked_for_again(backend: Backend, cut: Any, capsys: Any) -> None:
    backend.script = [cut, cut]

    assert await client().create_models() == {"ok": True}
    assert "kind=connection try=1 max_tries=3" in capsys.readouterr().out


@pytest.mark.parametrize("fields", [{}, {"max_connection_retries": 1}])
async def test_a_backend_that_always_breaks_off_is_an_error(backend: Backend, fields: dict[str, Any]) -> None:
    backend.script = [ServerDisconnectedError()] * 9

    with pytest.raises(ServerDisconnectedError):
        await client(**fields).create_models()
    assert len(backend.requests) == (1 if fields else 3)


async def test_other_connection_errors_were_tried_before_and_are_raised(backend: Backend) -> None:
    key: Any = ConnectionKey("backend", 80, False, True, None, None, None)
    backend.script = [ClientConnectorError(key, OSError("refused"))]

    with pytest.raises(ClientConnectorError):
        await client().create_models()
    assert len(backend.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": "invalid_api_key"}},
        {"error": {"type": "authentication_error"}},
        {"code": "invalid_api_token"},
        {"detail": "Incorrect API key provided: sk-secret"},
    ],
)
async def test_a_refused_key_is_not_used_again(backend: Backend, status: int, answer: Any, capsys: Any) -> None:
    backend.script = [Answer(status, answer)]
    talker = client()

    assert await status_of(talker.create_models()) == status
    with pytest.raises(PermanentEndpointError) as caught:
        await talker.create_chat_completion()
    with pytest.raises(PermanentEndpointError):
        await client().create_models()

    assert len(backend.requests) == 1
    assert caught.value.status == status
    assert URL in caught.value.message
    assert caught.value.response_content == json.dumps(answer).encode()
    printed = capsys.readouterr().out
    assert "[model_retry_stop " in printed and "sk-secret" not in printed


async def test_a_refused_key_is_told_once_with_what_to_do(backend: Backend, capsys: Any) -> None:
    backend.script = [Answer(401, {"error": {"code": "invalid_api_key", "message": "wrong: sk-secret"}})] * 2
    talker = client()
    await status_of(talker.create_models())
    assert backend_endpoint.troubles() == [
        {"url": URL, "status": 401, "seconds": 60.0, "refuses": "refuses the API key"},
    ]
    backend.time += 61
    assert backend_endpoint.troubles() == []
    await status_of(talker.create_models())

    said = capsys.readouterr().err
    assert said.count("Warning: http://backend/v1 refuses the API key (HTTP 401: ") == 1
    assert "policy_api_key" in said and "start the servers again" in said and "sk-secret" not in said


async def test_a_quiet_that_was_asked_for_can_be_seen(backend: Backend) -> None:
    endpoint = backend_endpoint.endpoint_of("http://me:pw@backend/v1", "sk")
    endpoint.ask_for_quiet(12.0, 429)
    assert backend_endpoint.troubles() == [{"url": URL, "status": 429, "seconds": 12.0, "refuses": None}]
    backend.time += 13
    assert backend_endpoint.troubles() == []


@pytest.mark.parametrize("code", ["budget_exceeded", "insufficient_quota"])
async def test_a_spent_budget_ends_the_call_and_all_later_ones(backend: Backend, code: str) -> None:
    backend.script = [error(429, code)]
    talker = client()

    with pytest.raises(PermanentEndpointError):
        await talker.create_models()
    with pytest.raises(PermanentEndpointError):
        await talker.create_models()
    assert len(backend.requests) == 1


async def test_another_key_or_backend_is_not_affected_by_a_trip(backend: Backend) -> None:
    backend.script = [error(401, "invalid_api_key")]
    await status_of(client().create_models())

    assert await client(api_key="sk-other").create_models() == {"ok": True}
    assert await client(base_url="http://other/v1").create_models() == {"ok": True}


async def test_a_trip_expires(backend: Backend) -> None:
    backend.script = [error(401, "invalid_api_key")]
    talker = client()
    await status_of(talker.create_models())
    assert talker._permanent_trip is not None

    backend.time += 61

    assert await talker.create_models() == {"ok": True}
    assert talker._permanent_trip is None


def test_a_client_remembers_its_trip_in_another_event_loop(backend: Backend) -> None:
    backend.script = [error(401, "invalid_api_key")]
    talker = client()

    assert asyncio.run(status_of(talker.create_models())) == 401
    with pytest.raises(PermanentEndpointError):
        asyncio.run(talker.create_models())
    assert asyncio.run(client().create_models()) == {"ok": True}


def test_the_error_of_a_trip_can_be_pickled() -> None:
    trip = PermanentEndpointError.of(401, b"body", URL)

    again = pickle.loads(pickle.dumps(trip))

    assert (type(again), again.status, again.response_content) == (PermanentEndpointError, 401, b"body")
    assert str(again) == str(trip)


async def test_a_context_overflow_is_not_tried_again(backend: Backend) -> None:
    backend.script = [error(500, text="This model's maximum context length is 4096 tokens")]

    assert await status_of(client().create_models()) == 500
    assert len(backend.requests) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"error": {"code": "context_length_exceeded"}}', True),
        ("prompt exceeds the context window", True),
        (b'{"error": {"message": "max_tokens must be positive"}}', False),
        (b"\xff", False),
        (b"[1]", False),
    ],
)
def test_context_overflow(content: bytes | str, expected: bool) -> None:
    assert is_context_overflow(content) is expected


@pytest.mark.parametrize(
    ("headers", "expected"), [({}, None), ({"Retry-After": "2.5"}, 2.5), ({"Retry-After": "-1"}, 0), (None, None)]
)
def test_retry_after_in_seconds(headers: Any, expected: float | None) -> None:
    assert retry_after_seconds(headers) == expected


def test_retry_after_as_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)

    assert 50 < (retry_after_seconds({"Retry-After": soon}) or 0) <= 60
    assert retry_after_seconds({"Retry-After": "soon"}) is None


async def test_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [web.json_response({}, status=503, headers={"Retry-After": "0"}), web.json_response({"id": "x"})]
    seen: list[Any] = []

    async def chat(request: web.Request) -> web.Response:
        seen.append((await request.json(), request.headers["Authorization"]))
        return answers.pop(0)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    async with TestServer(app) as server, openai_utils_session(monkeypatch):
        talker = client(base_url=str(server.make_url("/v1")))
        assert await talker.create_chat_completion(model="m") == {"id": "x"}
        with pytest.raises(ClientResponseError) as caught:
            await talker.create_models()

    assert seen == [({"model": "m"}, "Bearer sk-secret")] * 2
    assert caught.value.status == 404
    assert pickle.loads(pickle.dumps(caught.value)).status == 404


def openai_utils_session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The process's HTTP session, for this test only."""
    from aiohttp import ClientSession

    session = ClientSession()
    monkeypatch.setattr(server_utils, "_GLOBAL_AIOHTTP_CLIENT", session)
    return session


def test_lazy_names_are_the_server_librarys() -> None:
    assert openai_utils.MAX_NUM_TRIES == server_utils.MAX_NUM_TRIES == client().max_http_attempts
    assert openai_utils.ClientResponseError is ClientResponseError
    assert openai_utils.request is server_utils.request
    with pytest.raises(AttributeError):
        openai_utils.no_such_name  # noqa: B018


@pytest.mark.parametrize("status", [429, 500])
async def test_a_long_wait_is_announced(backend: Backend, status: int, capsys: Any) -> None:
    backend.script = [error(status, **{"Retry-After": "60"})]

    await client(base_url="http://user:pass@backend/v1").create_models()

    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("[model_wait ")]
    assert line.startswith(f"[model_wait url={URL} seconds=6") and line.endswith(" try=2 max_tries=3]")
    assert "pass" not in printed


async def test_a_short_wait_is_not_announced(backend: Backend, capsys: Any) -> None:
    backend.time = 100
    backend.script = [error(429, **{"Retry-After": "4"}), error(500, **{"Retry-After": "5"})]

    await client().create_models()

    assert "model_wait" not in capsys.readouterr().out


async def test_a_wait_is_announced_once_to_all_who_wait_for_the_same_backend(backend: Backend, capsys: Any) -> None:
    backend.script = [error(429, **{"Retry-After": "60"})]
    await status_of(client(max_http_attempts=1).create_models())
    begun = backend.time

    await client().create_models()
    backend.time = begun
    await client().create_models()
    assert capsys.readouterr().out.count("[model_wait ") == 1

    backend.script = [error(429, **{"Retry-After": "100"})]
    await client().create_models()
    assert capsys.readouterr().out.count("[model_wait ") == 1


async def test_a_body_that_is_no_json_is_one_sentence(backend: Backend) -> None:
    backend.script = [Answer(body=b"<html>")]

    with pytest.raises(GymError) as caught:
        await client(base_url="http://user:pass@backend/v1").create_response()
    assert str(caught.value).startswith("http://backend/v1/responses answered 200 with a body that is no JSON: ")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({}, "'id' is missing"),
        ({"id": "r", "created_at": "x"}, "created_at: Input should be a valid number, "),
        ([], "Input should be a valid dictionary"),
        ({"error": {"message": "no such model"}}, "'id' is missing; its error: {'message': 'no such model'}"),
    ],
)
def test_a_200_without_an_answer_is_one_sentence(answer: Any, fault: str) -> None:
    with pytest.raises(GymError) as caught:
        checked_answer(NeMoGymResponse, answer, base_url="http://user:pass@backend/v1", what="Response")

    sentence = str(caught.value)
    assert sentence.startswith(f"the backend at {URL} answered 200 with no Response: {fault}")
    assert "\n" not in sentence and "pass" not in sentence and len(sentence) < 250
    assert refusal_status(caught.value) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a:b@host/v1", "http://host/v1"),
        ("http://a:p@ss@host/v1", "http://host/v1"),
        ("http://host/v1?q=a@b", "http://host/v1?q=a@b"),
        ("http://host/@v1", "http://host/@v1"),
    ],
)
def test_passwords_in_urls_are_not_shown(url: str, shown: str) -> None:
    assert without_userinfo(url) == shown
