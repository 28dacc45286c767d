"""Whatever a handler looks like, our route answers as FastAPI's own does."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import orjson
import pytest
from fastapi import BackgroundTasks, Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field, model_validator
from starlette.responses import PlainTextResponse

from nemo_gym.serve.bodies import MAX_NESTING
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.json_route import JSONRoute
from tests.unit.serve.toys import call_app


class Item(BaseModel):
    name: str
    count: int = 1
    tags: list[str] = []


class Loose(Item):
    model_config = {"extra": "allow"}


class Dog(BaseModel):
    kind: Literal["dog"]
    bark: str


class Cat(BaseModel):
    kind: Literal["cat"]
    purr: int


class Empty(BaseModel):
    pass


class Answer(BaseModel):
    total: int
    note: str | None = None
    ratio: float = Field(default=0.5, alias="Ratio")


class DetailedAnswer(Answer):
    secret: str = "hidden"


JSON = {"content-type": "application/json"}
Pet = Annotated[Dog | Cat, Field(discriminator="kind")]


async def plain(body: Item) -> Answer:
    return Answer(total=body.count)


async def with_body_marker(body: Item = Body()) -> Answer:
    return Answer(total=body.count)


async def subclass_result(body: Item) -> Answer:
    return DetailedAnswer(total=body.count)


async def no_annotation(body: Loose):  # type: ignore[no-untyped-def]
    return {"body": body, "extra": body.model_extra, 5: "number"}


async def dict_body(body: dict[str, Any]) -> dict[str, Any]:
    return body


async def bare_dict(body: dict) -> dict:  # type: ignore[type-arg]
    return body


async def dict_result(body: Item) -> Answer:
    return {"total": body.count, "secret": "dropped"}  # type: ignore[return-value]


async def union_body(body: Item | Empty) -> Item | Empty:
    return body


async def tagged_body(body: Pet) -> Pet:
    return body


async def optional_body(body: Item | None = None) -> dict[str, Any]:
    return {"got": body.name if body else None}


async def request_and_response(request: Request, response: Response, body: Item) -> Answer:
    response.set_cookie("a", "b")
    response.status_code = 202
    assert (await request.body()) and (await request.json())["name"] == body.name
    return Answer(total=request.scope["path"].count("/"))


async def own_response(body: Item) -> Response:
    return PlainTextResponse(body.name, status_code=207, headers={"x-mark": "1"})


async def own_response_despite_annotation(body: Item) -> Answer:
    return PlainTextResponse("plain")  # type: ignore[return-value]


async def refusing(body: Item) -> Answer:
    raise HTTPException(418, {"why": body.name})


async def list_result(body: Item) -> list[Item]:
    return [body, body]


async def none_result(body: Item) -> None:
    return None


async def by_path(path: str, body: Item) -> dict[str, str]:
    return {"path": path, "name": body.name}


def synchronous(body: Item) -> Answer:
    return Answer(total=body.count)


async def with_query(body: Item, q: int = 3) -> dict[str, int]:
    return {"q": q, "count": body.count}


async def with_dependency(body: Item, extra: str = Depends(lambda: "dep")) -> dict[str, str]:
    return {"extra": extra}


async def with_background(body: Item, tasks: BackgroundTasks) -> dict[str, str]:
    tasks.add_task(lambda: None)
    return {"ok": "yes"}


async def two_bodies(item: Item, other: Empty) -> dict[str, str]:
    return {"name": item.name}


async def embedded(item: Annotated[Item, Body(embed=True)]) -> dict[str, str]:
    return {"name": item.name}


FAST = [
    plain,
    with_body_marker,
    subclass_result,
    no_annotation,
    dict_body,
    bare_dict,
    dict_result,
    union_body,
    tagged_body,
    optional_body,
    request_and_response,
    own_response,
    own_response_despite_annotation,
    refusing,
    list_result,
    none_result,
    synchronous,
]
SLOW = [with_query, with_dependency, with_background, two_bodies, embedded]

BODIES = [
    b'{"name": "x", "count": 7, "tags": ["a"], "more": {"z": null}}',
    b'{"name": "x"}',
    b'{"name": 5}',
    b'{"count": "seven"}',
    b"{}",
    b"[]",
    b'"text"',
    b"null",
    b"17",
    b"",
    b"{not json",
    b'{"name": "x"',
    b'{"kind": "dog", "bark": "w"}',
    b'{"kind": "cow"}',
    b'{"name": "\xff"}',
    b'{"item": {"name": "x"}, "other": {}}',
    b'{"name": "\\ud83d\\ude00 \xc3\xa9"}',
]


def client_for(app: FastAPI, handler: Any, path: str = "/it") -> TestClient:
    app.post(path)(handler)
    return TestClient(app)


def replies(handler: Any, body: bytes, content_type: str | None = "application/json") -> list[Any]:
    headers = {"content-type": content_type} if content_type else {}
    seen = []
    for app in (FastAPI(), json_app()):
        reply = client_for(app, handler).post("/it", content=body, headers=headers)
        try:
            content = orjson.loads(reply.content)
        except orjson.JSONDecodeError:
            content = reply.content
        kept = {name: value for name, value in reply.headers.items() if name != "content-length"}
        seen.append((reply.status_code, content, kept))
    return seen


@pytest.mark.parametrize("handler", [*FAST, *SLOW], ids=lambda handler: handler.__name__)
@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_answers_like_fastapi(handler: Any, body: bytes) -> None:
    theirs, ours = replies(handler, body)
    assert ours == theirs


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json; charset=utf-8",
        "application/vnd.api+json",
        "text/plain",
        "application/x-www-form-urlencoded",
    ],
)
@pytest.mark.parametrize("handler", [plain, dict_body, optional_body], ids=lambda handler: handler.__name__)
def test_reads_the_content_types_fastapi_reads(handler: Any, content_type: str | None) -> None:
    theirs, ours = replies(handler, b'{"name": "x"}', content_type)
    assert ours == theirs


@pytest.mark.parametrize("handler", FAST, ids=lambda handler: handler.__name__)
def test_everyday_handlers_take_the_short_way(handler: Any) -> None:
    assert JSONRoute("/it", handler, methods=["POST"]).is_fast


@pytest.mark.parametrize("handler", SLOW, ids=lambda handler: handler.__name__)
def test_other_handlers_are_left_to_fastapi(handler: Any) -> None:
    assert not JSONRoute("/it", handler, methods=["POST"]).is_fast


def test_takes_text_from_the_path() -> None:
    assert JSONRoute("/tools/{path}", by_path, methods=["POST"]).is_fast
    client = client_for(json_app(), by_path, "/tools/{path}")
    assert client.post("/tools/add", json={"name": "x"}).json() == {"path": "add", "name": "x"}


def test_options_that_change_the_answer_are_left_to_fastapi() -> None:
    app = json_app()
    app.post("/it", response_model_exclude={"note"}, status_code=201)(plain)
    reply = TestClient(app).post("/it", json={"name": "x"})
    assert (reply.status_code, reply.json()) == (201, {"total": 1, "Ratio": 0.5})


def test_keeps_a_declared_status() -> None:
    app = json_app()
    app.post("/it", status_code=201)(plain)
    assert TestClient(app).post("/it", json={"name": "x"}).status_code == 201


def test_a_result_that_breaks_its_annotation_is_the_servers_fault() -> None:
    async def wrong(body: Item) -> Answer:
        return {"total": "many"}  # type: ignore[return-value]

    client = TestClient(client_for(json_app(), wrong).app, raise_server_exceptions=False)
    assert client.post("/it", json={"name": "x"}).status_code == 500


class Counted(BaseModel):
    value: int

    @model_validator(mode="wrap")
    @classmethod
    def count(cls, value: Any, handler: Any) -> Any:
        validations.append(value)
        return handler(value)


validations: list[Any] = []


def test_an_instance_is_not_validated_again() -> None:
    async def handler(body: Item) -> Counted:
        return Counted(value=1)

    assert client_for(json_app(), handler).post("/it", json={"name": "x"}).json() == {"value": 1}
    assert validations == [{"value": 1}]


@pytest.mark.parametrize("handler", [dict_body, no_annotation], ids=lambda handler: handler.__name__)
def test_what_json_cant_hold_becomes_null(handler: Any) -> None:
    reply = client_for(json_app(), handler).post("/it", content=b'{"name": "x", "much": Infinity}', headers=JSON)
    assert reply.status_code == 200
    assert b'"much":null' in reply.content


def test_numbers_orjson_refuses_are_still_written() -> None:
    async def huge(body: Item) -> dict[str, int]:
        return {"n": 2**70}

    assert client_for(json_app(), huge).post("/it", json={"name": "x"}).json() == {"n": 2**70}


def nested(depth: int, beside: str = "") -> bytes:
    inner = b"[" * (depth - 1) + b"]" * (depth - 1)
    return b'{"beside": "%s", "v": %s}' % (beside.encode(), inner)


@pytest.mark.parametrize("beside", ["", "[" * 500], ids=["plain", "with brackets in text"])
@pytest.mark.parametrize(("depth", "status"), [(150, 200), (MAX_NESTING, 200), (MAX_NESTING + 1, 422), (600, 422)])
def test_bounds_nesting(depth: int, status: int, beside: str) -> None:
    reply = client_for(json_app(), dict_body).post("/it", content=nested(depth, beside), headers=JSON)
    assert reply.status_code == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"name": "\\ud800"}', 422),
        (b'{"name": "x", "\\udc00": NaN}', 422),
        (b'{"name": "x", "count": %s}' % (b"9" * 5_000), 400),
        (b"[" * 100_000, 400),
    ],
    ids=["half a pair", "half a pair in a key", "thousands of digits", "endless nesting"],
)
def test_refuses_json_that_is_no_data(body: bytes, status: int) -> None:
    assert client_for(json_app(), dict_body).post("/it", content=body, headers=JSON).status_code == status


async def invalid_after_all(body: Item) -> Answer:
    raise RequestValidationError([{"loc": ("body", "count"), "msg": "no", "type": "x"}], body=body)


@pytest.mark.parametrize("route", [plain, invalid_after_all], ids=lambda handler: handler.__name__)
async def test_a_custom_validation_handler_can_read_the_body(route: Any) -> None:
    app = json_app()
    app.post("/it")(route)
    body = b'{"count": 2}' if route is plain else b'{"name": "x"}'

    async def handler(request: Request, error: Exception) -> Response:
        return PlainTextResponse(await request.body(), status_code=400)

    app.add_exception_handler(RequestValidationError, handler)
    async with asyncio.timeout(20):
        status, _, content = await call_app(app, "/it", body)
    assert (status, content) == (400, body)
