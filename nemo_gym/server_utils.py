"""Servers and their clients: what every component process is built on."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import socket
import sys
import threading
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, cast

import orjson
from aiohttp import ClientResponse, ClientResponseError, ClientSession
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import BaseModel, PrivateAttr

from nemo_gym import WORKING_DIR
from nemo_gym.config.handover import read_config, read_token, run_directory
from nemo_gym.config.keys import (
    DEFAULT_HEAD_SERVER_PORT,
    DRY_RUN_KEY_NAME,
    HEAD_SERVER_KEY_NAME,
    RAY_HEAD_NODE_ADDRESS_KEY_NAME,
)
from nemo_gym.config.notices import notify
from nemo_gym.config.secrets import Redactor, recursively_hide_secrets
from nemo_gym.config_types import BaseRunServerInstanceConfig, BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_first_server_config_dict,
    get_global_config_dict,
    maybe_get_global_config_dict,
)
from nemo_gym.serve import egress, ray_cluster, redaction, replies
from nemo_gym.serve.cancellation import ClientDisconnectCancellationMiddleware
from nemo_gym.serve.client import (
    ANSWERS_ARE_REPEATED,
    NEMO_GYM_MODEL_SERVER_BASE_URL_ENV_VAR_NAME,
    NEMO_GYM_MODEL_SERVER_NAME_ENV_VAR_NAME,
    BaseServerClient,
)
from nemo_gym.serve.client_settings import GlobalAIOHTTPAsyncClientConfig
from nemo_gym.serve.connections import ClientSessions, abandon
from nemo_gym.serve.correlation import (
    ROLLOUT_PATH_PREFIX,
    TOKEN_CAPTURE_PATH_SEGMENT,
    apply_rollout_prefix,
    current_rollout_id,
    rollout_path_prefix,
)
from nemo_gym.serve.deadline_middleware import DeadlineMiddleware
from nemo_gym.serve.failures import ExceptionMiddleware
from nemo_gym.serve.guards import BodyLimit, HostGuard, is_loopback
from nemo_gym.serve.head import Head, ServerInstanceDisplayConfig, serve_in_thread
from nemo_gym.serve.head_client import ServerStatus, fetch_config_text
from nemo_gym.serve.idempotency import IdempotencyMiddleware
from nemo_gym.serve.in_flight import InFlightMiddleware
from nemo_gym.serve.in_flight import table as requests_in_flight
from nemo_gym.serve.limits import raise_open_files
from nemo_gym.serve.log_prefix import prefix_output
from nemo_gym.serve.log_streams import print_to_log_if_launched
from nemo_gym.serve.lost_sessions import LostSessionMiddleware, own_generation
from nemo_gym.serve.process import Seat, missing_server, own_instance_name, validated_block, validated_settings
from nemo_gym.serve.profiler import Profiler, ProfilingMiddlewareConfig, profile_app
from nemo_gym.serve.replies import get_response_json
from nemo_gym.serve.session_store import stores_of
from nemo_gym.serve.sessions import SESSION_ID_KEY, SessionMiddleware, signing_key
from nemo_gym.serve.shard import Resident, share_of
from nemo_gym.serve.slow_clients import UvicornTimeoutsConfig
from nemo_gym.serve.sockets import bind
from nemo_gym.serve.uvicorn_server import (
    KeepaliveHttpToolsProtocol,
    ServingOptions,
    UvicornProxyHeadersConfig,
    UvicornServer,
)
from nemo_gym.serve.validation_log import log_and_answer_422
from nemo_gym.serve.worker_env import (
    get_nemo_gym_fastapi_num_workers,
    is_nemo_gym_fastapi_entrypoint,
    is_nemo_gym_fastapi_worker,
    set_is_nemo_gym_fastapi_entrypoint,
    set_is_nemo_gym_fastapi_worker,
    set_nemo_gym_fastapi_num_workers,
)
from nemo_gym.telemetry import (
    connection_pool,
    init_telemetry,
    instrument_app,
    is_metrics_exporter_active,
    is_span_group_enabled,
    shutdown_telemetry,
)
from nemo_gym.telemetry.http_client import request_span

__all__ = [
    "DEFAULT_HEAD_SERVER_PORT",
    "DISCONNECTED_CLIENT_OS_PRINT_INTERVAL",
    "HEAD_SERVER_KEY_NAME",
    "MAX_NUM_TRIES",
    "NEMO_GYM_MODEL_SERVER_BASE_URL_ENV_VAR_NAME",
    "NEMO_GYM_MODEL_SERVER_NAME_ENV_VAR_NAME",
    "ROLLOUT_PATH_PREFIX",
    "SESSION_ID_KEY",
    "TOKEN_CAPTURE_PATH_SEGMENT",
    "BaseRunServerInstanceConfig",
    "BaseServer",
    "BaseServerConfig",
    "ClientDisconnectCancellationMiddleware",
    "ClientResponse",
    "ClientResponseError",
    "GlobalAIOHTTPAsyncClientConfig",
    "HeadServer",
    "KeepaliveHttpToolsProtocol",
    "ProfilingMiddlewareConfig",
    "ServerClient",
    "ServerInstanceDisplayConfig",
    "ServerStatus",
    "SimpleServer",
    "UvicornProxyHeadersConfig",
    "apply_rollout_prefix",
    "get_first_server_config_dict",
    "get_global_aiohttp_client",
    "get_global_config_dict",
    "get_nemo_gym_fastapi_num_workers",
    "get_response_json",
    "get_server_url",
    "global_aiohttp_client_exit",
    "initialize_ray",
    "is_global_aiohttp_client_request_debug_enabled",
    "is_global_aiohttp_client_setup",
    "is_nemo_gym_fastapi_entrypoint",
    "is_nemo_gym_fastapi_worker",
    "maybe_ray_cluster_exit",
    "raise_for_status",
    "request",
    "rollout_path_prefix",
    "set_global_aiohttp_client",
    "set_is_nemo_gym_fastapi_entrypoint",
    "set_is_nemo_gym_fastapi_worker",
    "set_nemo_gym_fastapi_num_workers",
    "setup_server_client",
]

MAX_NUM_TRIES = 3
DISCONNECTED_CLIENT_OS_PRINT_INTERVAL = egress.PRINT_EVERY

# --- the shared HTTP client -------------------------------------------------------------------------------------------
_GLOBAL_AIOHTTP_CLIENT: ClientSession | None = None
"""The newest client, or the one somebody put here; every event loop has a client of its own."""
_GLOBAL_AIOHTTP_CLIENT_SETTINGS: GlobalAIOHTTPAsyncClientConfig | None = None
_GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY: Any = None
_client_sessions = ClientSessions()
_announced_capacities: set[str] = set()


def get_global_aiohttp_client(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> ClientSession:
    """The HTTP client of the running event loop, made when first asked for."""
    known = _GLOBAL_AIOHTTP_CLIENT
    if known is not None and not _client_sessions.owns(known):
        return known
    session = _client_sessions.find()
    if session is not None:
        return session
    return _new_client(_client_settings(global_config_dict_parser_config, global_config_dict_parser_cls))


def set_global_aiohttp_client(cfg: GlobalAIOHTTPAsyncClientConfig) -> ClientSession:
    """Make the HTTP client with these settings; there must be none yet."""
    assert not is_global_aiohttp_client_setup(), "the shared HTTP client exists already"
    return _new_client(cfg)


def _new_client(settings: GlobalAIOHTTPAsyncClientConfig) -> ClientSession:
    global _GLOBAL_AIOHTTP_CLIENT, _GLOBAL_AIOHTTP_CLIENT_SETTINGS, _GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY
    share = settings.for_one_worker(get_nemo_gym_fastapi_num_workers())
    _GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY = (
        connection_pool.ConnectionPoolTelemetry() if is_metrics_exporter_active() else None
    )
    session = _client_sessions.create(share, _GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY)
    _GLOBAL_AIOHTTP_CLIENT, _GLOBAL_AIOHTTP_CLIENT_SETTINGS = session, settings
    return session


def _client_settings(
    parser_config: GlobalConfigDictParserConfig | None, parser_cls: type[GlobalConfigDictParser]
) -> GlobalAIOHTTPAsyncClientConfig:
    if _GLOBAL_AIOHTTP_CLIENT_SETTINGS is not None and parser_config is None:
        return _GLOBAL_AIOHTTP_CLIENT_SETTINGS
    if parser_config is not None:
        config = get_global_config_dict(
            global_config_dict_parser_config=parser_config, global_config_dict_parser_cls=parser_cls
        )
    elif _has_global_config():
        config = get_global_config_dict()
    else:
        return GlobalAIOHTTPAsyncClientConfig()
    return GlobalAIOHTTPAsyncClientConfig.model_validate(config)


_get_global_config_dict = get_global_config_dict


def _has_global_config() -> bool:
    """Whether asking for the config composes nothing: it is there, was handed down, or a test put it there."""
    is_replaced = get_global_config_dict is not _get_global_config_dict
    return is_replaced or maybe_get_global_config_dict() is not None or read_config() is not None


def is_global_aiohttp_client_setup() -> bool:
    """Whether there is an HTTP client that can be used."""
    return _GLOBAL_AIOHTTP_CLIENT is not None and getattr(_GLOBAL_AIOHTTP_CLIENT, "closed", False) is not True


def is_global_aiohttp_client_request_debug_enabled() -> bool:
    """Whether failed calls are printed with their bodies."""
    settings = _GLOBAL_AIOHTTP_CLIENT_SETTINGS
    return settings is not None and settings.global_aiohttp_client_request_debug


def global_aiohttp_client_exit() -> None:
    """Close every HTTP client of this process."""
    global _GLOBAL_AIOHTTP_CLIENT
    foreign, _GLOBAL_AIOHTTP_CLIENT = _GLOBAL_AIOHTTP_CLIENT, None
    if foreign is not None and not _client_sessions.owns(foreign):
        asyncio.run(foreign.close())
    for loop, session in _client_sessions.take_all():
        if loop.is_running() and not session.closed:
            asyncio.run_coroutine_threadsafe(session.close(), loop)
        elif not session.closed:
            abandon(session)


atexit.register(global_aiohttp_client_exit)


async def request(
    method: str,
    url: str,
    _internal: bool = False,
    _max_connection_retries: int | None = None,
    _server_name: str | None = None,
    **kwargs: Any,
) -> ClientResponse:
    """One HTTP request with aiohttp's options; the answer may have any status.

    A request that can't have had an effect, or may be repeated by its method or its idempotency key, is tried again
    after transport errors: a bounded number of times, `_max_connection_retries` if given. Everything else raises at
    once. `_internal` marks calls between servers of a run, `_server_name` is the label of the destination in metrics.
    """
    client = get_global_aiohttp_client()
    tries = None if _max_connection_retries is None else max(1, _max_connection_retries)
    terms = {"debug": is_global_aiohttp_client_request_debug_enabled(), "internal": _internal}
    queue = _GLOBAL_AIOHTTP_CLIENT_QUEUE_TELEMETRY
    token = None if queue is None else connection_pool._SERVER_NAME.set(_server_name or "external")
    try:
        if not is_span_group_enabled("http_client"):
            return await egress.send(client, method, url, tries=tries, **terms, **kwargs)
        with request_span(method, url, kwargs, current_rollout_id()) as span:
            response = await egress.send(client, method, url, tries=tries, **terms, **span.options)
            span.answered(getattr(response, "status", None))
            return response
    finally:
        if token is not None:
            connection_pool._SERVER_NAME.reset(token)


async def raise_for_status(response: ClientResponse, content: bytes | None = None) -> None:
    """Raise a picklable ClientResponseError with `response_content` (bytes) unless the response is a success.

    `content` is the body, if it has been read already.
    """
    try:
        await replies.raise_for_status(response, content)
    except ClientResponseError as error:
        if is_global_aiohttp_client_request_debug_enabled():
            print(redaction.redact(f"{error.request_info.method} {error.request_info.url} answered {error!r}"))
        raise


# --- calling servers by name ------------------------------------------------------------------------------------------
class ServerClient(BaseServerClient):
    """Calls the servers of a run by their names; those in this very process are called without a socket."""

    @classmethod
    def load_head_server_config(cls) -> BaseServerConfig:
        """Where the config says the head server is."""
        return BaseServerConfig.model_validate(get_global_config_dict()[HEAD_SERVER_KEY_NAME])

    @classmethod
    def load_from_global_config(cls, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client for the run this process belongs to, else for the one behind the head server.

        Raises ValueError naming the URL when no head server answers.
        """
        if read_config() is not None:
            head = head_server_config or cls.load_head_server_config()
            return cls(head_server_config=head, global_config_dict=get_global_config_dict())
        head = head_server_config or cls.load_head_server_config()
        config = OmegaConf.create(fetch_config_text(head.host, head.port))
        return cls(head_server_config=head, global_config_dict=cast(DictConfig, config))

    async def _send(self, method: str, url: str, server_name: str, options: dict[str, Any]) -> ClientResponse:
        return await request(method, url, _internal=True, _server_name=server_name, **options)


def setup_server_client(head_server_config: BaseServerConfig | None = None) -> ServerClient:
    """A client for a running set of servers, its HTTP settings taken from their config."""
    global _GLOBAL_AIOHTTP_CLIENT_SETTINGS
    client = ServerClient.load_from_global_config(head_server_config)
    if not is_global_aiohttp_client_setup():
        _GLOBAL_AIOHTTP_CLIENT_SETTINGS = GlobalAIOHTTPAsyncClientConfig.model_validate(client.global_config_dict)
    return client


def get_server_url(server_name: str) -> str:
    """`http://host:port` of a server of the global config."""
    block = get_first_server_config_dict(get_global_config_dict(), server_name)
    return f"http://{block['host']}:{block['port']}"


# --- Ray --------------------------------------------------------------------------------------------------------------
def _get_ray() -> ModuleType:
    return ray_cluster.get_ray()


def initialize_ray() -> None:
    """Connect this process to the run's Ray cluster; without one start it and store its address in the config."""
    config = get_global_config_dict()

    def remember(address: str) -> None:
        with open_dict(config):
            config[RAY_HEAD_NODE_ADDRESS_KEY_NAME] = address

    ray_cluster.join_or_start(_get_ray(), config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME), remember)


def maybe_ray_cluster_exit() -> None:
    """End the Ray cluster if this process started it."""
    if "ray" in sys.modules:
        ray_cluster.shut_down_own_cluster(_get_ray())


def _server_uses_ray(server_cls: type[SimpleServer]) -> bool:
    if server_cls.ray_enabled is not None:
        return server_cls.ray_enabled
    source = getattr(sys.modules.get(server_cls.__module__), "__file__", None)
    uses_ray = source is not None and ray_cluster.sources_import_ray(Path(source).resolve().parent)
    if uses_ray:
        notify(f"{server_cls.__name__} imports ray, so it joins the run's cluster: declare `ray_enabled = True`.")
    return uses_ray


# --- servers ----------------------------------------------------------------------------------------------------------
class BaseServer(BaseModel):
    """Something that listens."""

    config: BaseRunServerInstanceConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseRunServerInstanceConfig:
        """The block of the instance this process was started for, as the class annotates `config`."""
        name = own_instance_name()
        global_config_dict = get_global_config_dict()
        if name not in global_config_dict:
            raise missing_server(name, map(str, global_config_dict))
        config_cls = cast(type[BaseRunServerInstanceConfig], cls.model_fields["config"].annotation)
        return validated_block(config_cls, name, get_first_server_config_dict(global_config_dict, name))

    def setup_liveness(self, app: FastAPI) -> None:
        """Answer the paths that tell whether the process lives."""

        async def alive() -> dict[str, str]:
            return {"status": "ok"}

        for path in ("/", "/health", "/healthz", "/livez", "/readyz"):
            app.get(path, include_in_schema=False)(alive)


class SimpleServer(BaseServer):
    """A component's server: construct it with a config and a client, or have `run_webserver` do everything."""

    server_client: ServerClient

    ray_enabled: ClassVar[bool | None] = None
    """Whether the process joins Ray; None: only if the component's sources import it."""
    shareable: ClassVar[bool] = False
    """Whether several servers of this class may live in one process, next to others."""

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """The app with all routes of the server."""

    def setup_telemetry(self) -> None:
        init_telemetry(
            self.config.name, _server_type_of(type(self)), rollout_id=current_rollout_id, redact=redaction.redact
        )

    def instrument_app_for_telemetry(self, app: FastAPI) -> None:
        """Record a span per request, if that is wanted."""
        instrument_app(app, self.config.name)

    def get_session_middleware_key(self) -> str:
        """The name of the session cookie, unique in a run."""
        return f"{self.__class__.__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Give every request a session; a second call on the same app changes nothing."""
        if getattr(app.state, "nemo_gym_session_middleware_installed", False):
            return
        name = self.get_session_middleware_key()
        if (generation := own_generation()) and self._holds_sessions():
            opening = self._session_opening_paths()
            app.add_middleware(LostSessionMiddleware, session_cookie=name, generation=generation, opening_paths=opening)
        app.add_middleware(SessionMiddleware, secret_key=_session_secret(self), session_cookie=name)
        app.state.nemo_gym_session_middleware_installed = True

    def _holds_sessions(self) -> bool:
        """Whether what a session needs to go on is in this process's memory."""
        return False

    def _session_opening_paths(self) -> tuple[str, ...]:
        """The routes that begin a session, whatever was before."""
        return ("/seed_session",)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Answer errors of handlers with a 500 that names this server."""
        app.add_middleware(ExceptionMiddleware, server_label=self.get_session_middleware_key())

    def setup_cancellation_middleware(self, app: FastAPI) -> None:
        """Cancel handlers whose client is gone."""
        app.add_middleware(
            ClientDisconnectCancellationMiddleware, is_debug=is_global_aiohttp_client_request_debug_enabled
        )

    def setup_profiling(self, app: FastAPI, profiling_config: ProfilingMiddlewareConfig) -> None:
        """Profile the app while it runs; `GET /stats` writes what was seen so far."""
        results = WORKING_DIR / (profiling_config.profiling_results_dirpath or "")
        directory = results / self.get_session_middleware_key().replace("/", "_")
        profile_app(app, Profiler(name=self.config.name.replace("/", "_"), base_profile_dir=directory))

    def set_ulimit(self, target_soft_limit: int = 65535) -> None:
        """Allow this process many open files."""
        if problem := raise_open_files(target_soft_limit):
            print(problem, file=sys.stderr)

    def prefix_server_logs(self) -> None:
        """Have every line of output say which server printed it."""
        prefix_output(self.config.name)

    @classmethod
    def run_webserver(cls) -> FastAPI | None:
        """Serve the instance this process was started for until told to stop.

        Returns None, or the app when another server of ASGI apps is to run it. A dry run only constructs the server.
        """
        print_to_log_if_launched()
        try:
            return cls._run_webserver()
        except GymError as error:
            print(f"Error: {error}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None

    @classmethod
    def _run_webserver(cls) -> FastAPI | None:
        global_config_dict = get_global_config_dict()
        redaction.install(Redactor.from_config(global_config_dict))
        is_imported = is_nemo_gym_fastapi_worker()
        config = cls.load_config_from_global_config()
        is_dry_run = bool(global_config_dict.get(DRY_RUN_KEY_NAME))
        seat = None if is_dry_run or is_imported else Seat.take(config)
        if _server_uses_ray(cls):
            initialize_ray()
        client = ServerClient(
            head_server_config=ServerClient.load_head_server_config(), global_config_dict=global_config_dict
        )
        server = cls(config=config, server_client=client)
        if is_dry_run:
            return None
        app = server._assemble(global_config_dict, is_main=seat is not None and seat.is_first)
        if seat is None:
            return app
        options = _serving_options(config, global_config_dict)
        try:
            seat.serve(app, options, name=config.name, base_url=client._build_server_base_url(config))
        finally:
            shutdown_telemetry()
        return None

    @classmethod
    def _resident(cls, sock: socket.socket, *, shards: int, is_main: bool) -> Resident:
        """The instance this process now serves as one of several, in one of `shards` processes alike."""
        global_config_dict = get_global_config_dict()
        config = share_of(cls.load_config_from_global_config(), shards)
        client = ServerClient(
            head_server_config=ServerClient.load_head_server_config(), global_config_dict=global_config_dict
        )
        app = cls(config=config, server_client=client)._assemble(global_config_dict, is_main=is_main)
        options = _serving_options(config, global_config_dict)
        return Resident(config.name, client._build_server_base_url(config), app, options, sock)

    def _assemble(self, global_config_dict: DictConfig, *, is_main: bool) -> FastAPI:
        self.setup_telemetry()
        app = self.setup_webserver()
        if getattr(self.config, "expose_tools_over_mcp", False):
            _expose_tools(self, app)
        self.setup_liveness(app)
        self.set_ulimit()
        self.prefix_server_logs()
        if is_main:
            _announce_capacity(global_config_dict)
        app.add_middleware(DeadlineMiddleware)
        self.setup_exception_middleware(app)
        requests = requests_in_flight.add_server(self.config.name, partial(_sessions_of, self))
        app.add_middleware(InFlightMiddleware, server=requests)
        if _server_type_of(type(self)) in ANSWERS_ARE_REPEATED:
            is_successor = own_generation() > 0
            app.add_middleware(
                IdempotencyMiddleware, is_successor=is_successor, server=self.get_session_middleware_key()
            )
        self.setup_cancellation_middleware(app)
        app.add_middleware(BodyLimit)
        if is_loopback(self.config.host):
            app.add_middleware(HostGuard, own_hosts=[self.config.host])
        self.instrument_app_for_telemetry(app)
        app.add_exception_handler(RequestValidationError, log_and_answer_422)
        profiling_config = ProfilingMiddlewareConfig.model_validate(global_config_dict)
        if profiling_config.profiling_enabled:
            self.setup_profiling(app, profiling_config)
        return app


_TYPE_OF_BASE = {
    "SimpleResourcesServer": "resources_servers",
    "SimpleResponsesAPIAgent": "responses_api_agents",
    "SimpleResponsesAPIModel": "responses_api_models",
    "BaseEnvironmentServer": "environment_servers",
}


def _server_type_of(server_cls: type) -> str:
    return next((_TYPE_OF_BASE[base.__name__] for base in server_cls.__mro__ if base.__name__ in _TYPE_OF_BASE), "")


def _sessions_of(server: SimpleServer) -> int:
    """How many sessions a server holds."""
    return sum(len(store) for store in stores_of(server))


def _session_secret(server: SimpleServer) -> str:
    """What signs the server's session cookies and seals its MCP tokens."""
    return signing_key(server.get_session_middleware_key(), _run_token())


def _run_token() -> str | None:
    """The secret of the run this process belongs to."""
    config = maybe_get_global_config_dict()
    head = config.get(HEAD_SERVER_KEY_NAME) if config is not None else None
    port = head.get("port") if head is not None else None
    return read_token(run_directory(int(port or DEFAULT_HEAD_SERVER_PORT)))


def _serving_options(config: BaseServerConfig, global_config_dict: DictConfig) -> ServingOptions:
    return ServingOptions(
        host=config.host,
        port=config.port,
        tcp_keepalive=validated_settings(GlobalAIOHTTPAsyncClientConfig, global_config_dict).tcp_keepalive,
        access_log=bool(global_config_dict.get("uvicorn_logging_show_200_ok")),
        proxies=validated_settings(UvicornProxyHeadersConfig, global_config_dict),
        read_timeout_seconds=validated_settings(UvicornTimeoutsConfig, global_config_dict).uvicorn_timeout_request_read,
    )


def _announce_capacity(global_config_dict: DictConfig) -> None:
    """Print what the HTTP client can do where somebody has set it, and whatever falls short of it."""
    settings = GlobalAIOHTTPAsyncClientConfig.model_validate(global_config_dict)
    lines = [settings.capacity_line()] if settings.model_fields_set else []
    for line in (*lines, *settings.capacity_warnings()):
        if line not in _announced_capacities:
            _announced_capacities.add(line)
            print(line)


def _expose_tools(server: SimpleServer, app: FastAPI) -> None:
    importlib.import_module("nemo_gym.mcp_auto_exposure").maybe_auto_expose(server, app)


# --- the head server --------------------------------------------------------------------------------------------------
class HeadServer(BaseServer):
    """Tells clients which servers a run consists of, and whether they are ready."""

    config: BaseServerConfig  # type: ignore[assignment]

    _head: Head = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._head = Head(
            full_config=lambda: OmegaConf.to_yaml(get_global_config_dict()),
            redacted_config=_redacted_config_yaml,
            token=lambda: read_token(run_directory(self.config.port)),
        )

    def setup_webserver(self) -> Any:
        """The head's ASGI app."""
        return self._head.app(host=self.config.host)

    @classmethod
    def run_webserver(
        cls, *, sockets: list[socket.socket] | None = None
    ) -> tuple[UvicornServer, threading.Thread, HeadServer]:
        """Serve in a daemon thread, on `sockets` if given; set the first result's `should_exit` to end it.

        Raises BusyPortError when somebody else listens there.
        """
        config = ServerClient.load_head_server_config()
        head = cls(config=config)
        sockets = sockets or [bind(config.host, config.port)]
        options = _serving_options(config, get_global_config_dict())
        server, thread = serve_in_thread(head.setup_webserver(), options, sockets=sockets)
        return server, thread, head

    def mark_ready(self) -> None:
        """Answer readiness checks with 200 from now on."""
        self._head.is_ready = True

    def invalidate_global_config_dict_yaml_cache(self) -> None:
        """Have the config read anew when it is asked for next."""
        self._head.forget_config_texts()

    async def global_config_dict_yaml(self) -> str:
        """The whole config as YAML, references unresolved."""
        return cast(str, orjson.loads(self._head.config_text(full=True)))

    def get_server_instances(self) -> Sequence[Any]:
        return self._head.instances

    def set_server_instances(self, instances: Sequence[Any]) -> None:
        """The servers of the run, as JSON objects."""
        self._head.instances = list(instances)


def _redacted_config_yaml() -> str:
    config = get_global_config_dict().copy()
    recursively_hide_secrets(config)
    return OmegaConf.to_yaml(config)
