"""Finding the route of a request by its path, where that says which one it is."""

from __future__ import annotations

from fastapi.routing import APIRouter
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.serve.json_route import JSONRoute


class FixedRoutes:
    """Sends requests for a path without parameters straight to their JSON route; all others go through the router.

    A route is chosen as the router would, the first time its path is asked for, and again when routes were added.
    """

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._search: ASGIApp = router.middleware_stack
        self._found: dict[tuple[str, str], JSONRoute | None] = {}
        self._paths: frozenset[str] = frozenset()
        self._number_of_routes = -1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._route_of(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        if route is None:
            await self._search(scope, receive, send)
            return
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
