from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field

from nemo_gym.serve import redaction
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.validation_log import MAX_BODY_CHARS, MAX_ERRORS, log_and_answer_422

JSON = {"content-type": "application/json"}


class Item(BaseModel):
    values: list[int]
    name: str = ""


class Access(BaseModel):
    api_key: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


async def use(body: Access) -> None: ...


async def pet(body: dict[str, Annotated[Cat | Dog, Field(discriminator="kind")]]) -> None: ...


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
        if text.startswith("{"):  # the body, which only the log repeats
            raise RuntimeError
        return text

    redaction.install(broken)
    try:
        reply = client.post("/it", json={"values": "x"})
    finally:
        redaction.install(None)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert reply.status_code == 422 and reply.json()["detail"][0]["loc"] == ["body", "values"]


def test_numbers_that_are_no_json_are_answered(client: TestClient) -> None:
    reply = client.post("/it", content=b'{"values": NaN}', headers=JSON)
    assert reply.status_code == 422 and reply.json()["detail"][0]["input"] is None


@pytest.mark.parametrize(
    ("sent", "repeated"),
    [(b'"half of a pair \\ud800"', "half of a pair \\ud800"), (b"9" * 40, "<a number of 133 bits>")],
    ids=["text", "number"],
)
def test_what_json_can_not_hold_is_described(sent: bytes, repeated: str) -> None:
    app = FastAPI()  # whose own parser lets it in
    app.add_exception_handler(RequestValidationError, log_and_answer_422)
    field = b"values" if sent.startswith(b'"') else b"name"
    reply = client_of(app).post("/it", content=b'{"values": [], "%s": %s}' % (field, sent), headers=JSON)
    assert reply.status_code == 422 and reply.json()["detail"][0]["input"] == repeated


def test_the_answer_is_no_larger_than_the_question(client: TestClient) -> None:
    body = {"values": ["x" * 100_000] * 3, "name": {"long": ["y" * 1000] * 200}}
    reply = client.post("/it", json=body)
    assert reply.status_code == 422 and len(reply.content) < 3_000
    assert [len(str(error["input"])) <= 200 for error in reply.json()["detail"]] == [True] * 4


def test_the_number_of_errors_is_told_when_not_all_are_listed(client: TestClient) -> None:
    answer = client.post("/it", json={"values": ["x"] * 1000}).json()
    assert (len(answer["detail"]), answer["errors_not_listed"]) == (50, 950)
    assert "errors_not_listed" not in client.post("/it", json={"values": ["x"] * 50}).json()


@pytest.mark.parametrize(
    "body",
    [
        {"values": {"api_key": "planted-secret"}},
        {"password": "planted-secret"},
        {"values": [], "name": {"headers": {"x": "planted-secret"}}},
        {"values": [{"openai_api_key": "planted-secret"}]},
        {"values": [[["planted-secret" + "x" * 200]] * 2]},
    ],
)
def test_secrets_of_a_body_are_not_handed_back(client: TestClient, body: dict[str, Any]) -> None:
    """B98: neither by the name they have nor, where it is long, at all."""
    reply = client.post("/it", json=body)
    assert reply.status_code == 422 and "planted-secret" not in reply.text


@pytest.mark.parametrize("value", ["planted-secret", ["planted-secret"], {"a": "planted-secret"}])
def test_a_wrong_secret_is_not_handed_back(value: Any) -> None:
    app = json_app()
    app.add_exception_handler(RequestValidationError, log_and_answer_422)
    app.post("/use")(use)
    reply = TestClient(app).post("/use", json={"api_key": value})
    assert reply.status_code == 422 and reply.json()["detail"][0]["input"] == "****"


def test_keys_and_messages_made_of_input_are_cut() -> None:
    app = json_app()
    app.add_exception_handler(RequestValidationError, log_and_answer_422)
    app.post("/pet")(pet)
    reply = TestClient(app).post("/pet", json={"k" * 5_000: {"kind": "t" * 5_000}})
    (error,) = reply.json()["detail"]
    assert error["type"] == "union_tag_invalid" and error["loc"][1].startswith("kkk")
    assert len(reply.content) < 1_500
