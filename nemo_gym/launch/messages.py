"""What the launcher and its fork server say to each other: one JSON object a packet, descriptors beside it."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nemo_gym.launch.errors import LaunchError

BUFFER_BYTES = 1 << 20
MOST_DESCRIPTORS = 250
"""The kernel takes 253 with one packet."""

Role = Literal["log", "listen", "ready"]


@dataclass(frozen=True)
class SpawnRequest:
    """One server process to make.

    `mode` is `fork` (run `entrypoint` in a copy of the fork server) or `exec` (run it with `python`). `environment` and
    `unset` change the fork server's own environment. `roles` says what each passed descriptor is, in order; a `log` is
    always among them, and a process that holds several servers has a `listen` for each.
    """

    name: str
    mode: Literal["fork", "exec"]
    python: str
    prefix: str
    site_packages: str
    entrypoint: str
    directory: str
    environment: dict[str, str]
    unset: list[str]
    roles: list[Role]


@dataclass(frozen=True)
class Message:
    """A received packet."""

    kind: str
    body: dict[str, Any]
    fds: list[int]


def new_channel() -> tuple[socket.socket, socket.socket]:
    """A connected pair that keeps packets whole."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return pair


def send(channel: socket.socket, kind: str, body: dict[str, Any] | None = None, fds: Sequence[int] = ()) -> None:
    """Send one packet; raises LaunchError when it can't fit one, OSError when nobody is there."""
    packet = json.dumps({"kind": kind, **(body or {})}).encode()
    try:
        if fds:
            socket.send_fds(channel, [packet], list(fds))
        else:
            channel.send(packet)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        raise LaunchError(
            f"The environment for the server is too large ({len(packet)} bytes): unset variables that aren't needed."
        ) from error


def request_body(request: SpawnRequest) -> dict[str, Any]:
    return asdict(request)


def receive(channel: socket.socket) -> Message | None:
    """The next packet; None when the other side is gone."""
    try:
        packet, fds, _, _ = socket.recv_fds(channel, BUFFER_BYTES, MOST_DESCRIPTORS)
    except ConnectionResetError:
        return None
    if not packet:
        for fd in fds:
            os.close(fd)
        return None
    body = json.loads(packet)
    return Message(body.pop("kind"), body, list(fds))
