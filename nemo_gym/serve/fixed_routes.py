"""Finding the route of a request by its path, where that says which one it is."""

from __future__ import annotations

from typing import cast

from fastapi import FastAPI
from fastapi.routing import APIRouter
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.serve.json_route import JSONRoute


class FixedRoutes:
    """The innermost middleware: requests for a path without parameters go straight to their JSON route, all others on.

    Such a route answers with the app's exception handlers itself, and opens no files that would have to be closed, so
    that what lies between the middleware and the routes is not needed. It is chosen as the router would, the first
    time its path is asked for, and again when routes were added.
    """

    def __init__(self, app: ASGIApp, *, router: APIRouter) -> None:
        self.app = app
        self._router = router
        self._handlers = _handlers_of(app)
        self._found: dict[tuple[str, str], JSONRoute | None] = {}
        self._paths: frozenset[str] = frozenset()
        self._number_of_routes = -1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_short = self._handlers is not None and scope["type"] == "http" and not scope.get("root_path")
        route = self._route_of(scope) if is_short else None
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["starlette.exception_handlers"] = self._handlers
        scope["router"], scope["route"], scope["endpoint"] = self._router, route, route.endpoint
        scope.setdefault("path_params", {})
        await route.app(scope, receive, send)

    def _route_of(self, scope: Scope) -> JSONRoute | None:
        if len(self._router.routes) != self._number_of_routes:
            self._look_again()
        path = scope["path"]
        if path not in self._paths:
            return None
        key = (scope["method"], path)
        if key not in self._found:
            self._found[key] = self._first_match(scope)
        return self._found[key]

    def _first_match(self, scope: Scope) -> JSONRoute | None:
        for route in self._router.routes:
            if route.matches(scope)[0] == Match.FULL:
                return route if isinstance(route, JSONRoute) and route.is_fast else None
        return None

    def _look_again(self) -> None:
        routes = self._router.routes
        fast = [route for route in routes if isinstance(route, JSONRoute) and route.is_fast]
        self._paths = frozenset(route.path for route in fast if not route.param_convertors)
        self._found = {}
        self._number_of_routes = len(routes)


def add_innermost(app: FastAPI, middleware: Middleware) -> None:
    """Add a middleware below all others but this one: what it does is done to all requests that reach a route."""
    own = (number for number, known in enumerate(app.user_middleware) if cast(object, known.cls) is FixedRoutes)
    app.user_middleware.insert(next(own, len(app.user_middleware)), middleware)


def _handlers_of(app: ASGIApp) -> tuple[object, object] | None:
    """The exception handlers of the app, as its own middleware, which comes next, hands them to routes.

    None where another middleware comes next, which has to be passed.
    """
    return (app._exception_handlers, app._status_handlers) if isinstance(app, ExceptionMiddleware) else None
