"""The head server: what a run consists of, for whoever wants to call or watch it."""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from nemo_gym.serve.guards import HostGuard, is_loopback
from nemo_gym.serve.head_client import ServerStatus
from nemo_gym.serve.uvicorn_server import ServingOptions, UvicornServer

LIVENESS_PATHS = ("/", "/livez")
READINESS_PATHS = ("/readyz", "/healthz", "/health")


@dataclass
class Head:
    """What the head server answers from. The config texts are made when first asked for, then kept.

    Only a request with `Authorization: Bearer <token>` gets the full config; everybody else, and everybody when there
    is no token, gets one of the same shape with its secrets masked.
    """

    full_config: Callable[[], str]
    redacted_config: Callable[[], str]
    token: Callable[[], str | None]
    instances: Sequence[Any] = ()
    is_ready: bool = False
    _texts: dict[bool, bytes] = field(default_factory=dict)

    def forget_config_texts(self) -> None:
        """Make the texts anew when they are asked for next."""
        self._texts.clear()

    def config_text(self, *, full: bool) -> bytes:
        """A JSON string that holds YAML."""
        if full not in self._texts:
            self._texts[full] = orjson.dumps(self.full_config() if full else self.redacted_config())
        return self._texts[full]

    def knows(self, authorization: str | None) -> bool:
        """Whether a header value proves that its sender may read secrets."""
        token = self.token()
        if not token or not authorization:
            return False
        return hmac.compare_digest(authorization.encode("utf-8"), f"Bearer {token}".encode())

    def app(self, *, host: str) -> Starlette:
        """The head's routes; on a loopback host only requests that name one are answered."""
        guards = [Middleware(HostGuard, own_hosts=[host])] if is_loopback(host) else []
        routes = [
            *(Route(path, self._alive) for path in LIVENESS_PATHS),
            *(Route(path, self._ready) for path in READINESS_PATHS),
            Route("/global_config_dict_yaml", self._config),
            Route("/server_instances", self._instances),
        ]
        return Starlette(routes=routes, middleware=guards)

    async def _alive(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        return _json({"status": "ok"}) if self.is_ready else _json({"status": "starting"}, status=503)

    async def _config(self, request: Request) -> Response:
        content = self.config_text(full=self.knows(request.headers.get("authorization")))
        return Response(content, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _instances(self, request: Request) -> Response:
        return _json(list(self.instances))


def _json(value: Any, *, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status_code=status, media_type="application/json")


class ServerInstanceDisplayConfig(BaseModel):
    """What is shown of one running server."""

    config_path: str | None = None
    dir_path: str | None = None
    entrypoint: str | None = None
    host: str | None = None
    name: str | None = None
    pid: int | None = None
    port: int | None = None
    process_name: str | None = None
    server_type: str | None = None
    start_time: float | None = None
    status: ServerStatus | None = None
    uptime_seconds: float | None = None
    url: str | None = None


def serve_in_thread(
    app: ASGIApp, options: ServingOptions, *, sockets: list[socket.socket] | None = None
) -> tuple[UvicornServer, threading.Thread]:
    """Serve an app from a daemon thread; set the server's `should_exit` and join the thread to end it.

    Returns once requests are answered. Raises RuntimeError when the thread ends before that.
    """
    settled = threading.Event()
    server = UvicornServer(options.uvicorn_config(app), on_ready=lambda _: settled.set())

    def run() -> None:
        try:
            server.run(sockets=sockets)
        finally:
            settled.set()

    thread = threading.Thread(target=run, name="nemo-gym-head", daemon=True)
    thread.start()
    settled.wait()
    if not server.started:
        raise RuntimeError(f"The server on {options.host}:{options.port} ended before it was ready.")
    return server, thread
