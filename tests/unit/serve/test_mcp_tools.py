"""Which routes become MCP tools, and how their handlers are called."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field, PrivateAttr
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym import mcp_auto_exposure
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.mcp_auto_exposure import (
    PERMISSIVE_SCHEMA,
    DirectDispatchError,
    MCPTool,
    bind_route,
    call_direct,
    harvest_tools,
    maybe_auto_expose,
)
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.mcp_tools import ExposureError
from nemo_gym.serve.sessions import current_session_id
from tests.unit.serve.toys import ToyResources, mock_client, resources_config


class City(BaseModel):
    name: str = Field(description="Its name")
    size: int = 1


class Shown(BaseModel):
    name: str


class Toys(ToyResources):
    """A server whose routes and tools a test chooses."""

    config: BaseResourcesServerConfig
    _routes: Any = PrivateAttr(default=None)
    _choose: Any = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        if self._routes is not None:
            self._routes(app)
        return app

    def mcp_tools(self, harvested: list[MCPTool], catchall: Any | None) -> list[MCPTool] | None:
        chosen: list[MCPTool] | None = self._choose(harvested, catchall) if self._choose else harvested
        return chosen


def toys(routes: Any = None, choose: Any = None, **config: Any) -> tuple[Toys, FastAPI]:
    server = Toys(config=resources_config(**{"expose_tools_over_mcp": True, **config}), server_client=mock_client())
    server._routes = routes
    server._choose = choose
    return server, server.setup_webserver()


def expose(routes: Any = None, choose: Any = None) -> dict[str, MCPTool]:
    tools = maybe_auto_expose(*toys(routes, choose))
    assert tools is not None
    return tools


async def city(body: City) -> City:
    """About a city."""
    return body


async def anything(body: dict[str, Any]) -> dict[str, Any]:
    return body


async def by_name(tool: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"tool": tool, **body}


# --- harvesting and choosing ------------------------------------------------------------------------------------------


def test_nothing_happens_unless_the_config_says_so() -> None:
    server, app = toys(lambda app: app.post("/city")(city), expose_tools_over_mcp=False)
    routes = list(app.routes)
    assert maybe_auto_expose(server, app) is None and list(app.routes) == routes


def test_post_routes_become_tools_and_the_frameworks_do_not() -> None:
    def routes(app: FastAPI) -> None:
        app.post("/city")(city)
        app.post("/told", description="What it does.")(anything)
        app.get("/page")(anything)

    tools = expose(routes)
    assert list(tools) == ["city", "told"]
    shown = tools["city"].tool
    assert (shown.name, shown.description, shown.inputSchema) == ("city", "About a city.", City.model_json_schema())
    assert (tools["told"].tool.description, tools["told"].tool.inputSchema) == ("What it does.", PERMISSIVE_SCHEMA)
    assert tools["city"].path == "/city" and tools["city"].path_value is None


def test_routes_of_an_included_router_count() -> None:
    router = APIRouter()
    router.post("/city")(city)
    assert list(expose(lambda app: app.include_router(router))) == ["city"]


def test_a_server_chooses_its_tools_and_names_those_of_its_catchall(caplog: pytest.LogCaptureFixture) -> None:
    def routes(app: FastAPI) -> None:
        app.post("/city")(city)
        app.post("/{tool}")(by_name)

    schema = {"type": "object", "properties": {"x": {}}}
    tools = expose(routes, lambda harvested, catchall: [catchall.tool("a", schema, "An A."), catchall.tool("b")])
    assert list(tools) == ["a", "b"]
    assert (tools["a"].tool.inputSchema, tools["a"].tool.description, tools["a"].path_value) == (schema, "An A.", "a")
    assert tools["b"].tool.inputSchema == PERMISSIVE_SCHEMA
    assert not caplog.records
    assert list(expose(routes)) == ["city"]
    assert "/{tool}" in caplog.text
    assert expose(routes, lambda *_: None) == expose(routes, lambda *_: []) == {}


def two_parameters(app: FastAPI) -> None:
    app.post("/{tool}")(by_name)
    app.post("/more/{tool}")(by_name)


def with_mcp(app: FastAPI) -> None:
    app.post("/mcp")(anything)


class Stranger:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def with_middleware(app: FastAPI) -> None:
    app.add_middleware(Stranger)


def with_function_middleware(app: FastAPI) -> None:
    async def dispatch(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app.middleware("http")(dispatch)


@pytest.mark.parametrize(
    ("routes", "problem"),
    [
        (two_parameters, "/more/{tool}"),
        (with_mcp, "/mcp"),
        (with_middleware, "Stranger"),
        (with_function_middleware, "BaseHTTPMiddleware"),
    ],
)
def test_an_app_whose_tools_would_behave_otherwise_is_refused(routes: Any, problem: str) -> None:
    with pytest.raises(ExposureError, match=problem) as caught:
        expose(routes)
    assert isinstance(caught.value, ValueError)


def test_starlettes_sessions_are_fine() -> None:
    assert expose(lambda app: app.add_middleware(SessionMiddleware, secret_key="k")) == {}


@pytest.mark.parametrize("missing", ["/seed_session", "/verify"])
def test_an_app_without_sessions_is_refused(missing: str) -> None:
    server, _ = toys()
    app = json_app()
    for path in {"/seed_session", "/verify"} - {missing}:
        app.post(path)(anything)
    with pytest.raises(ExposureError, match=missing):
        maybe_auto_expose(server, app)


def test_exposing_twice_is_refused() -> None:
    server, app = toys(lambda app: app.post("/city")(city))
    maybe_auto_expose(server, app)
    with pytest.raises(ExposureError, match="/mcp"):
        maybe_auto_expose(server, app)


@pytest.mark.parametrize(
    ("choose", "problem"),
    [
        (lambda harvested, catchall: [*harvested, *harvested], "twice"),
        (lambda harvested, catchall: [catchall.tool("a b")], "letters"),
        (lambda harvested, catchall: [catchall.tool("verify")], "framework"),
    ],
)
def test_tools_have_names_of_their_own(choose: Any, problem: str) -> None:
    def routes(app: FastAPI) -> None:
        app.post("/city")(city)
        app.post("/{tool}")(by_name)

    with pytest.raises(ExposureError, match=problem):
        expose(routes, choose)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_auto_exposure, "find_spec", lambda name: None)
    with pytest.raises(ExposureError, match=r"requirements\.txt"):
        expose()


# --- handlers ---------------------------------------------------------------------------------------------------------


def route_of(handler: Any, path: str = "/tool", **options: Any) -> Any:
    app = json_app()
    app.post(path, **options)(handler)
    return next(route for route in app.routes if getattr(route, "path", None) == path)


async def optional(body: City | None = None) -> None: ...
async def either(body: City | Shown) -> None: ...
async def two(body: City, other: Shown) -> None: ...
async def query(body: City, verbose: bool = False) -> None: ...
async def marked(verbose: Annotated[str, Query()]) -> None: ...
async def injected(body: City, user: str = Depends(lambda: "me")) -> None: ...
async def noted(body: City, user: Annotated[str, Depends(lambda: "me")]) -> None: ...
async def numbered(tool: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "names"),
    [
        (optional, ["body"]),
        (either, ["body"]),
        (two, ["other"]),
        (query, ["verbose"]),
        (marked, ["verbose"]),
        (injected, ["user"]),
        (noted, ["user"]),
    ],
)
def test_what_arguments_cannot_fill_is_said(handler: Any, names: list[str]) -> None:
    bound = bind_route(route_of(handler))
    assert bound.binding is None
    assert [reason.split("`")[1] for reason in bound.reasons] == names
    with pytest.raises(ExposureError, match=rf"`tool` \(POST /tool\) .*`{names[0]}`"):
        expose(lambda app: app.post("/tool")(handler))
    assert expose(lambda app: app.post("/tool")(handler), lambda *_: []) == {}, (
        "only what is offered has to be callable"
    )


def test_a_path_gives_text_only() -> None:
    assert "`tool`" in bind_route(route_of(numbered, "/{tool}")).reasons[0]

    async def nameless(request: Request) -> None: ...

    _, catchall = harvest_tools(_app(lambda app: app.post("/{tool}")(nameless)))
    assert catchall is not None and catchall.binding is None and catchall.reasons


def _app(routes: Any) -> FastAPI:
    app = FastAPI()
    routes(app)
    return app


async def ask(handler: Any, arguments: dict[str, Any], *, path: str = "/tool", tool: str | None = None, **options: Any):  # type: ignore[no-untyped-def]
    binding = bind_route(route_of(handler, path, **options)).binding
    assert binding is not None
    return await call_direct(binding, arguments, session_id="s1", path_value=tool)


async def test_arguments_are_validated_and_answers_filtered() -> None:
    async def shown(body: City = Body()) -> Shown:
        return Shown.model_validate({"name": body.name, "extra": body.size}, strict=False)

    async def loose(body: Annotated[City, Body()]) -> Any:
        return City(name=body.name, size=2)

    assert await ask(shown, {"name": "Oslo"}) == {"name": "Oslo"}
    assert await ask(loose, {"name": "Oslo"}) == {"name": "Oslo", "size": 2}
    assert await ask(loose, {"name": "Oslo"}, response_model=Shown) == {"name": "Oslo"}
    assert await ask(city, {"name": "Oslo"}, response_model_exclude_unset=True) == {"name": "Oslo"}
    with pytest.raises(DirectDispatchError, match=r"HTTP 422 from POST /tool: .*name"):
        await ask(city, {"size": 3})


async def test_the_request_has_the_session_and_the_body() -> None:
    async def both(first: Request, second: Request) -> dict[str, Any]:
        sessions = {first.session["session_id"], second.session["session_id"], current_session_id()}
        return {"sessions": sorted(map(str, sessions)), "body": await first.json(), "method": first.method}

    assert await ask(both, {"a": 1}) == {"sessions": ["s1"], "body": {"a": 1}, "method": "POST"}
    assert current_session_id() is None


async def test_the_path_says_which_tool() -> None:
    assert await ask(by_name, {"a": 1}, path="/{tool}", tool="x") == {"tool": "x", "a": 1}

    async def gone(tool: str) -> None:
        raise HTTPException(404, {"why": "gone"})

    with pytest.raises(DirectDispatchError, match=r'HTTP 404 from POST /x: \{"why":"gone"\}'):
        await ask(gone, {}, path="/{tool}", tool="x")


async def test_handlers_that_block_run_in_a_thread() -> None:
    def where(body: dict[str, Any]) -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await ask(where, {}) is False


async def test_responses_of_a_handlers_own_are_read() -> None:
    async def made(body: dict[str, Any]) -> Any:
        return JSONResponse(body, status_code=body["status"])

    async def said(body: dict[str, Any]) -> Any:
        return PlainTextResponse("no JSON")

    assert await ask(made, {"status": 201}) == {"status": 201}
    assert await ask(said, {}) == "no JSON"
    with pytest.raises(DirectDispatchError, match="HTTP 418 from POST /tool"):
        await ask(made, {"status": 418})


async def test_failures_read_like_those_of_the_route() -> None:
    async def broken(body: dict[str, Any]) -> None:
        raise KeyError("lost")

    with pytest.raises(DirectDispatchError, match=r"HTTP 500 from POST /tool: KeyError\('lost'\)"):
        await ask(broken, {})
