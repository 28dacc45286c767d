"""Which Ray cluster an address means, and whether one is there: Ray itself would try for minutes, then end us."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from nemo_gym.config.keys import RAY_HEAD_NODE_ADDRESS_KEY_NAME
from nemo_gym.launch.errors import LaunchError
from nemo_gym.serve.ray_cluster import ADDRESS_ENV

AUTO = "auto"
CONNECT_SECONDS = 10.0
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>\d+)")
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""What a gRPC client begins with, and empty settings; a server answers with settings of its own, a frame of kind 4."""
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4


def find_cluster(configured: str | None) -> str:
    """The address of the cluster to join: the configured one, or that of this Ray job; empty where there is neither.

    `auto` is the one that `ray start` began on this machine. Raises LaunchError when none is there.
    """
    asked = str(configured or os.environ.get(ADDRESS_ENV) or "")
    if asked == AUTO:
        asked = os.environ.get(ADDRESS_ENV) or _last_started() or AUTO
        if _why_silent(asked) is not None:
            raise none_here()
    elif asked and (why := _why_silent(asked)) is not None:
        raise LaunchError(
            f"No Ray cluster answers at {asked} ({why}): give the address that `ray start --head` printed with "
            f"+{RAY_HEAD_NODE_ADDRESS_KEY_NAME}=host:port, or auto for one on this machine."
        )
    return asked


def is_started_here(address: str) -> bool:
    """Whether this is the cluster that `ray start` last began on this machine, by whatever name of the machine."""
    asked, noted = (_HOST_AND_PORT.fullmatch(one) for one in (address, _last_started()))
    if asked is None or noted is None or asked["port"] != noted["port"]:
        return False
    return asked["host"] == noted["host"] or (_is_this_machine(asked["host"]) and _is_this_machine(noted["host"]))


def _is_this_machine(host: str) -> bool:
    """Only an address of this machine can be bound."""
    name = host.strip("[]")
    try:
        with socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET) as probe:
            probe.bind((name, 0))
    except OSError:
        return False
    return True


def none_here() -> LaunchError:
    """The error for `auto` where there is none."""
    return LaunchError(
        f"No Ray cluster runs on this machine: start one with `ray start --head`, or give the address of another with "
        f"+{RAY_HEAD_NODE_ADDRESS_KEY_NAME}=host:port."
    )


def _why_silent(address: str) -> str | None:
    """None where something that may be a cluster's head answers, or where this can't tell."""
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return None
    try:
        where = (match["host"].strip("[]"), int(match["port"]))
        with socket.create_connection(where, CONNECT_SECONDS) as connection:
            connection.sendall(_HELLO)
            answer = connection.recv(_FRAME_HEADER_BYTES)
    except TimeoutError:
        return "no answer"
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    is_grpc = len(answer) == _FRAME_HEADER_BYTES and answer[3] == _SETTINGS
    return None if is_grpc else "what answers there is something else"


def _last_started() -> str:
    """What Ray noted when a head was last started here; that may be over."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
