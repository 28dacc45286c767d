"""Requests for a path without parameters reach the route that the router would have chosen."""

from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from nemo_gym.serve.fixed_routes import FixedRoutes, add_innermost
from nemo_gym.serve.json_app import json_app


class Body(BaseModel):
    n: int = 0


def _answering(name: str) -> Any:
    async def handler(body: Body) -> dict[str, str]:
        return {"from": name}

    return handler


@pytest.fixture
def app() -> FastAPI:
    return json_app()


def _searches(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were looked for by the router itself from now on."""
    fixed: Any = app.build_middleware_stack()
    app.middleware_stack = fixed
    while not isinstance(fixed, FixedRoutes):
        fixed = fixed.app
    searched: list[str] = []
    search = fixed.app

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            searched.append(scope["path"])
        await search(scope, receive, send)

    monkeypatch.setattr(fixed, "app", noting)
    return searched


def test_a_known_path_needs_no_search(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    app.post("/a")(_answering("a"))
    app.post("/b")(_answering("b"))
    searched = _searches(app, monkeypatch)
    client = TestClient(app)
    assert [client.post(path, json={}).json()["from"] for path in ("/a", "/b", "/a")] == ["a", "b", "a"]
    assert searched == []


def test_an_earlier_route_with_a_parameter_goes_first(app: FastAPI) -> None:
    app.post("/{name}")(_answering("any"))
    app.post("/a")(_answering("a"))
    assert TestClient(app).post("/a", json={}).json() == {"from": "any"}


def test_of_two_routes_with_one_path_the_first_answers(app: FastAPI) -> None:
    app.post("/a")(_answering("first"))
    app.post("/a")(_answering("second"))
    assert TestClient(app).post("/a", json={}).json() == {"from": "first"}


def test_routes_added_later_are_found(app: FastAPI) -> None:
    client = TestClient(app)
    app.post("/a")(_answering("a"))
    assert client.post("/a", json={}).status_code == 200
    assert client.post("/b", json={}).status_code == 404
    app.post("/b")(_answering("b"))
    assert client.post("/b", json={}).json() == {"from": "b"}


def test_another_method_is_refused_as_ever(app: FastAPI) -> None:
    app.post("/a")(_answering("a"))
    client = TestClient(app)
    assert client.post("/a", json={}).status_code == 200
    refused = client.delete("/a")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_each_method_of_a_path_has_its_own_route(app: FastAPI) -> None:
    app.put("/a")(_answering("put"))
    app.post("/a")(_answering("post"))
    client = TestClient(app)
    assert client.post("/a", json={}).json() == {"from": "post"}
    assert client.put("/a", json={}).json() == {"from": "put"}


def test_a_wrong_body_is_told_as_by_the_router(app: FastAPI) -> None:
    app.post("/a")(_answering("a"))
    refused = TestClient(app).post("/a", json={"n": "many"})
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "n"]


def test_a_mounted_app_is_searched(app: FastAPI) -> None:
    app.post("/a")(_answering("a"))
    outer = FastAPI()
    outer.mount("/below", app)
    client = TestClient(outer)
    assert client.post("/below/a", json={}).json() == {"from": "a"}
    assert client.post("/a", json={}).status_code == 404
    app.post("/below/b")(_answering("b"))
    assert client.post("/below/b", json={}).status_code == 404


def test_the_app_s_exception_handlers_are_heard(app: FastAPI) -> None:
    class ShutError(Exception):
        pass

    @app.post("/a")
    async def handler(body: Body) -> dict[str, str]:
        if body.n == 0:
            raise HTTPException(418)
        raise ShutError

    app.add_exception_handler(418, lambda request, error: PlainTextResponse("no coffee", 418))
    app.add_exception_handler(ShutError, lambda request, error: PlainTextResponse("shut", 503))
    client = TestClient(app)
    answers = [client.post("/a", json={"n": n}) for n in (0, 1)]
    assert [(answer.status_code, answer.text) for answer in answers] == [(418, "no coffee"), (503, "shut")]


def test_middleware_added_by_a_component_comes_before_the_route(app: FastAPI) -> None:
    app.post("/a")(_answering("a"))

    @app.middleware("http")
    async def refuse(request: Request, answer: Any) -> Response:
        return PlainTextResponse("not today", 403)

    assert TestClient(app).post("/a", json={}).status_code == 403


def test_a_middleware_below_all_others_is_passed_too(app: FastAPI) -> None:
    app.post("/a")(_answering("a"))

    @app.middleware("http")
    async def name(request: Request, answer: Any) -> Any:
        request.state.name = "Ada"
        return await answer(request)

    class Greeting:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                answer = PlainTextResponse(f"Hello, {scope['state']['name']}")
                await answer(scope, receive, send)
            else:
                await self.app(scope, receive, send)

    add_innermost(app, Middleware(Greeting))
    assert TestClient(app).post("/a", json={}).text == "Hello, Ada"
    innermost: Any = app.user_middleware[-1].cls
    assert innermost is FixedRoutes, "fixed paths still go the short way"


def test_a_middleware_that_a_component_puts_last_is_passed_too(app: FastAPI) -> None:
    app.post("/a")(_answering("a"))

    class Refusing:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await PlainTextResponse("no", 403)(scope, receive, send)

    app.user_middleware.append(Middleware(Refusing))
    assert TestClient(app).post("/a", json={}).status_code == 403
