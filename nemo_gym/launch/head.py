"""The head server of a run: in a thread of the launcher, on a socket that was bound before."""

from __future__ import annotations

import copy
import socket
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

from nemo_gym.config.handover import read_token
from nemo_gym.config.secrets import recursively_hide_secrets
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.run_directory import RunDirectory

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.serve.head import Head
    from nemo_gym.serve.uvicorn_server import UvicornServer

_JOIN_SECONDS = 5.0


@dataclass
class RunningHead:
    """`head` is what it answers from, `server` the uvicorn server, `thread` where that runs."""

    head: Head
    server: UvicornServer
    thread: Thread

    def set_instances(self, records: list[dict[str, Any]]) -> None:
        self.head.instances = records

    def mark_ready(self) -> None:
        self.head.is_ready = True

    def check(self) -> None:
        """Raise LaunchError when the thread has ended."""
        if not self.thread.is_alive():
            raise LaunchError("The head server's thread ended unexpectedly.")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(_JOIN_SECONDS)


def start_head(config: DictConfig, host: str, bound: socket.socket, directory: RunDirectory) -> RunningHead:
    """Serve `config` on a bound socket; returns once requests are answered."""
    from nemo_gym.serve.head import Head, serve_in_thread
    from nemo_gym.serve.uvicorn_server import ServingOptions, UvicornProxyHeadersConfig

    head = Head(
        full_config=lambda: _as_yaml(config),
        redacted_config=lambda: _as_redacted_yaml(config),
        token=lambda: read_token(directory.path),
    )
    proxies = UvicornProxyHeadersConfig(
        uvicorn_proxy_headers=bool(config.get("uvicorn_proxy_headers")),
        uvicorn_forwarded_allow_ips=config.get("uvicorn_forwarded_allow_ips"),
    )
    options = ServingOptions(host=host, port=bound.getsockname()[1], proxies=proxies)
    server, thread = serve_in_thread(head.app(host=host), options, sockets=[bound])
    return RunningHead(head, server, thread)


def _as_yaml(config: DictConfig) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(config)


def _as_redacted_yaml(config: DictConfig) -> str:
    redacted = copy.deepcopy(config)
    recursively_hide_secrets(redacted)
    return _as_yaml(redacted)
