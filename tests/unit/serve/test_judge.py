from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Mapping
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiohttp import ClientResponseError, RequestInfo
from fastapi import FastAPI
from fastapi.testclient import TestClient
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import BaseModel
from yarl import URL

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.judge import JudgeError, call_judge, judge_failsafe, reraise_judge_errors
from nemo_gym.serve import redaction
from nemo_gym.serve.failures import ExceptionMiddleware
from tests.unit.serve.toys import VERIFY, ToyResources, mock_client, resources_config


class Verdict(BaseModel):
    score: int


class Reply:
    def __init__(self, body: bytes, ok: bool = True) -> None:
        self.ok, self._body = ok, body

    async def read(self) -> bytes:
        return self._body

    def raise_for_status(self) -> None:
        raise RuntimeError("bad status")


class JudgedRequest(BaseVerifyRequest):
    model_config = {"extra": "allow"}


class Judged(ToyResources):
    async def verify(self, body: JudgedRequest) -> BaseVerifyResponse:  # type: ignore[override]
        await call_judge(
            self.server_client, server_name="judge", url_path="/v1/responses", json={}, response_model=Verdict
        )
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


def judged(reply: Reply | Exception) -> TestClient:
    client = mock_client()
    client.post = AsyncMock(side_effect=[reply])
    return TestClient(Judged(config=resources_config(), server_client=client).setup_webserver())


async def test_a_judges_answer_is_validated() -> None:
    client = mock_client()
    client.post = AsyncMock(return_value=Reply(b'{"score": 3}'))
    verdict = await call_judge(client, server_name="j", url_path="/p", json={"q": 1}, response_model=Verdict)
    assert verdict == Verdict(score=3)
    client.post.assert_awaited_once_with(server_name="j", url_path="/p", json={"q": 1})


@pytest.mark.parametrize(
    "reply", [Reply(b"{}"), Reply(b"no json"), Reply(b'{"score": 3}', ok=False), ConnectionError("gone")]
)
def test_a_judge_that_fails_masks_the_sample(reply: Any) -> None:
    answer = judged(reply).post("/verify", json={**VERIFY, "answer": "A", "instance_config": {"kept": 1}})
    body = answer.json()
    assert answer.status_code == 200
    assert (body["reward"], body["mask_sample"], body["failure_kind"]) == (0.0, True, "judge_failed")
    assert body["_ng_failure_class"] == "judge_failed" and body["_ng_failure_judge_error"] == body["failure_reason"]
    assert body["instance_config"] == {"kept": 1, "mask_sample": True}
    assert body["answer"] == "A" and body["response"]["id"] == "resp_1"


def test_a_judge_that_answers_scores() -> None:
    body = judged(Reply(b'{"score": 1}')).post("/verify", json=VERIFY).json()
    assert (body["reward"], body["mask_sample"]) == (1.0, False)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b'"the key is hunter22"', "; the reply begins: the key is ****"),
        (b"\x1b[31m\xff", "; the reply begins: \\x1b[31m\ufffd"),
        (b"x" * 500, "; the reply begins: " + "x" * 199 + "\u2026"),
        (b" ", ""),
    ],
)
async def test_the_reason_says_how_the_judges_reply_began(content: bytes, shown: str) -> None:
    async def fail() -> None:
        error = ValueError("bad")
        error.response_content = content  # type: ignore[attr-defined]
        raise error

    redaction.install(lambda text: text.replace("hunter22", "****"))
    try:
        with pytest.raises(JudgeError) as caught:
            await reraise_judge_errors(fail())
    finally:
        redaction.install(None)
    assert str(caught.value) == "ValueError: bad" + shown


async def test_no_secret_is_in_what_a_verifier_says_of_its_judge() -> None:
    async def verify(body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise JudgeError("hunter22 \ud800")

    redaction.install(lambda text: text.replace("hunter22", "****"))
    try:
        reply = await judge_failsafe(verify)(BaseVerifyRequest.model_validate(VERIFY))
    finally:
        redaction.install(None)
    body = json.loads(reply.body)
    assert body["failure_reason"] == body["_ng_failure_judge_error"] == "**** \\ud800"


async def test_any_error_becomes_a_judge_error() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(JudgeError, match="KeyError: 'x'"):
        await reraise_judge_errors(fail())


async def test_the_wrapper_keeps_signature_and_errors() -> None:
    async def verify(body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise LookupError

    wrapped = judge_failsafe(verify)
    assert inspect.signature(wrapped) == inspect.signature(verify)
    with pytest.raises(LookupError):
        await wrapped(body=BaseVerifyRequest.model_validate(VERIFY))


async def test_reasons_are_cut_and_the_body_is_found_by_type() -> None:
    def verify(thing: object, request: BaseVerifyRequest) -> None:
        raise JudgeError("x" * 5000)

    reply = await judge_failsafe(verify)(object(), BaseVerifyRequest.model_validate(VERIFY))
    body = json.loads(reply.body)
    assert len(body["failure_reason"]) == 2000 and len(body["_ng_failure_judge_error"]) == 5000


async def test_without_a_body_it_is_a_programmers_error() -> None:
    async def verify() -> None:
        raise JudgeError

    with pytest.raises(RuntimeError, match="no verify request"):
        await judge_failsafe(verify)()


# --- refusals ---------------------------------------------------------------------------------------------------------


def answered(status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> ClientResponseError:
    url = URL("http://judge/v1/responses")
    request = RequestInfo(url, "POST", CIMultiDictProxy(CIMultiDict()), url)
    error = ClientResponseError(request, (), status=status, headers=CIMultiDict(headers or {}))
    error.response_content = content  # type: ignore[attr-defined]
    return error


def passed_on(status: int, content: bytes = b"") -> ClientResponseError:
    """What a judge's model server answers whose own backend answered with `status`."""
    app = FastAPI()

    @app.post("/v1/responses")
    async def respond() -> None:
        raise answered(status, content)

    app.add_middleware(ExceptionMiddleware, server_label="judge")
    reply = TestClient(app).post("/v1/responses")
    assert reply.status_code == 500
    return answered(reply.status_code, reply.content, reply.headers)


TOO_LONG = b'{"error": {"code": "context_length_exceeded", "message": "too long"}}'


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (answered(400), True),
        (answered(413), True),
        (answered(422), True),
        (answered(500, TOO_LONG), True),
        (passed_on(400, b"no"), True),
        (passed_on(500, TOO_LONG), True),
        (answered(401), False),
        (answered(404), False),
        (answered(429), False),
        (answered(429, TOO_LONG), False),
        (answered(500, b"no"), False),
        (passed_on(503), False),
        (passed_on(401), False),
        (ConnectionError("gone"), False),
        (TimeoutError(), False),
    ],
)
async def test_it_is_known_whether_a_judge_refused_what_it_was_asked(error: Exception, is_refusal: bool) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(JudgeError) as caught:
        await reraise_judge_errors(fail())
    assert caught.value.is_refusal is is_refusal
    with pytest.raises(JudgeError) as caught_again:
        await reraise_judge_errors(reraise_judge_errors(fail()))
    assert caught_again.value.is_refusal is is_refusal
    assert pickle.loads(pickle.dumps(caught.value)).is_refusal is is_refusal
