"""The life of one server process: what it is told, the socket it sits on, and serving."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import INSTANCE_ENV
from nemo_gym.config.hints import did_you_mean, unknown_keys
from nemo_gym.config.instances import BaseRunServerInstanceConfig, BaseRunServerTypeConfig
from nemo_gym.config.notices import warn
from nemo_gym.serve import local
from nemo_gym.serve.forks import reset_signals_in_forks
from nemo_gym.serve.garbage import relax_collection
from nemo_gym.serve.in_flight_socket import open_table_socket
from nemo_gym.serve.sockets import listener, report_ready, take_ready_descriptor
from nemo_gym.serve.uvicorn_server import ServingOptions, UvicornServer
from nemo_gym.serve.worker_env import announce_workers
from nemo_gym.serve.workers import Worker, fork_workers

_Config = TypeVar("_Config", bound=BaseModel)

_INFORMATIONAL_KEYS = frozenset(
    {"name", "description", "value", "verified", "verified_url", "allowed_agents", "allowed_model_types"}
)
_FRAMEWORK_KEYS = frozenset(BaseRunServerTypeConfig.model_fields) | _INFORMATIONAL_KEYS


def own_instance_name() -> str:
    """Which server of the config this process is to serve."""
    name = os.environ.get(INSTANCE_ENV)
    if not name:
        raise ConfigError(
            f"{INSTANCE_ENV} isn't set, so this process can't tell which server it is: start servers with "
            f"`gym env start`, or set it to the instance's name."
        )
    return name


def validated_block(config_class: type[_Config], name: str, block: DictConfig) -> _Config:
    """A server's block, interpolations resolved, as its own config class; ConfigError names every wrong field."""
    fields: dict[str, Any] = OmegaConf.to_container(block, resolve=True)  # type: ignore[assignment]
    _warn_of_unknown_keys(config_class, name, fields)
    try:
        return config_class.model_validate({**fields, "name": name})
    except ValidationError as error:
        raise ConfigError(f"The configuration of server `{name}` is wrong: {_problems(error)}.") from error


def validated_settings(settings_class: type[_Config], config: Mapping[str, Any] | DictConfig) -> _Config:
    """Settings of all servers from the top level of the config; ConfigError names every wrong one."""
    try:
        return settings_class.model_validate(config)
    except ValidationError as error:
        raise ConfigError(f"The configuration is wrong: {_problems(error)}.") from error


def _problems(error: ValidationError) -> str:
    found = error.errors(include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'block'}: {item['msg']}" for item in found)


def _warn_of_unknown_keys(config_class: type[BaseModel], name: str, fields: Mapping[str, Any]) -> None:
    if config_class.model_config.get("extra") in ("allow", "forbid"):
        return
    known = _FRAMEWORK_KEYS.union(_names_of(config_class))
    for key, meant in unknown_keys(fields, known):
        hint = f" Did you mean `{meant}`?" if meant else ""
        warn(f"server `{name}` ignores the key `{key}`, which {config_class.__name__} doesn't have.{hint}")


def _names_of(config_class: type[BaseModel]) -> Iterable[str]:
    for name, info in config_class.model_fields.items():
        yield name
        if isinstance(info.validation_alias or info.alias, str):
            yield str(info.validation_alias or info.alias)


def missing_server(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a server name the config doesn't define."""
    return ConfigError(f"The config defines no server `{name}`.{did_you_mean(name, known)}")


@dataclass(frozen=True)
class Seat:
    """Where this process serves, and whom it tells when it does."""

    sock: socket.socket
    ready_descriptor: int | None
    worker: Worker | None = None

    @classmethod
    def take(cls, config: BaseRunServerInstanceConfig) -> Seat:
        """The inherited socket or a new one; with `num_workers` > 1 this returns in each of the workers."""
        seat = cls(listener(config.host, config.port), take_ready_descriptor())
        workers = config.num_workers or 1
        if workers <= 1:
            return seat
        announce_workers(config.entrypoint, workers)
        worker = fork_workers(workers, seat.sock, seat.ready_descriptor)
        return replace(seat, ready_descriptor=worker.ready_descriptor, worker=worker)

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all that serve the socket."""
        return self.worker is None or self.worker.index == 0

    def serve(self, app: ASGIApp, options: ServingOptions, *, name: str, base_url: str) -> None:
        """Answer requests until told to stop; calls from this process to `name` at `base_url` need no socket."""
        _exit_cleanly_on_term()
        reset_signals_in_forks()

        def ready(server: UvicornServer) -> None:
            relax_collection()
            local.register(name, base_url, app, state=server.lifespan.state)
            open_table_socket()
            report_ready(self.ready_descriptor)

        try:
            UvicornServer(options.uvicorn_config(app), on_ready=ready).run(sockets=[self.sock])
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


def _exit_cleanly_on_term() -> None:
    """uvicorn raises the signal again when it has stopped: without a handler that skips whatever `atexit` holds."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)
