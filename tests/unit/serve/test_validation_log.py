from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import BaseModel

from nemo_gym.serve import redaction
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.validation_log import MAX_BODY_CHARS, MAX_ERRORS, log_and_answer_422

JSON = {"content-type": "application/json"}


class Item(BaseModel):
    values: list[int]
    name: str = ""


async def handler(body: Item) -> str:
    return body.name


def client_of(app: FastAPI) -> TestClient:
    app.post("/it")(handler)
    return TestClient(app)


@pytest.fixture
def client() -> TestClient:
    app = json_app()
    app.add_exception_handler(RequestValidationError, log_and_answer_422)
    return client_of(app)


def logged(caplog: pytest.LogCaptureFixture) -> Any:
    (record,) = [record for record in caplog.records if record.name == "nemo_gym.server_utils"]
    assert record.levelno == logging.WARNING
    return record


def test_the_answer_is_fastapis(client: TestClient) -> None:
    body = {"values": ["x", 1.5]}
    assert client.post("/it", json=body).json() == client_of(FastAPI()).post("/it", json=body).json()


def test_the_log_says_where_it_is_wrong(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    client.post("/it", json={"values": [1, "x"]})
    record = logged(caplog)
    assert record.validation_error_count == 1
    assert record.validation_errors == [
        {
            "type": "int_parsing",
            "loc": ["body", "values", 1],
            "msg": "Input should be a valid integer, unable to parse string as an integer",
        }
    ]
    assert record.validation_errors_truncated is False
    assert record.request_body_size_bytes == len(b'{"values":[1,"x"]}')
    assert record.request_body_prefix == r'"{\"values\":[1,\"x\"]}"'
    assert record.request_body_truncated is False


def test_long_reports_are_cut(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    client.post("/it", json={"values": ["x" * 50] * 1000})
    record = logged(caplog)
    assert (record.validation_error_count, len(record.validation_errors)) == (1000, MAX_ERRORS)
    assert record.validation_errors_truncated and record.request_body_truncated
    assert len(record.request_body_prefix) == MAX_BODY_CHARS


def test_text_cant_forge_log_lines(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    client.post(
        "/it", content=b'{"values": "a\nWARNING forged \x1b[31m"}', headers={"content-type": "application/json"}
    )
    record = logged(caplog)
    assert "\n" not in record.getMessage() and "\x1b" not in record.request_body_prefix


def test_secrets_are_masked(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    redaction.install(lambda text: text.replace("hunter22", "****"))
    try:
        client.post("/it", json={"values": "hunter22"})
    finally:
        redaction.install(None)
    assert "hunter22" not in logged(caplog).request_body_prefix


def test_a_failing_log_does_not_change_the_answer(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    def broken(text: str) -> str:
        raise RuntimeError

    redaction.install(broken)
    try:
        reply = client.post("/it", json={"values": "x"})
    finally:
        redaction.install(None)
    assert reply.status_code == 422 and reply.json()["detail"][0]["loc"] == ["body", "values"]


def test_numbers_that_are_no_json_are_answered(client: TestClient) -> None:
    reply = client.post("/it", content=b'{"values": NaN}', headers=JSON)
    assert reply.status_code == 422 and reply.json()["detail"][0]["input"] is None


@pytest.mark.parametrize("sent", [b'"half of a pair \\ud800"', b"9" * 40], ids=["text", "number"])
def test_what_only_the_standard_encoder_writes_is_repeated(sent: bytes) -> None:
    app = FastAPI()  # whose own parser lets it in
    app.add_exception_handler(RequestValidationError, log_and_answer_422)
    reply = client_of(app).post("/it", content=b'{"name": [%s]}' % sent, headers=JSON)
    assert reply.status_code == 422 and sent in reply.content
