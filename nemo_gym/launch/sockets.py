"""Every listening socket of a run, bound before anything starts.

A port that was chosen for the user is chosen again when somebody took it in the meantime; a port the user set is not.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from nemo_gym.launch.errors import PortTakenError
from nemo_gym.launch.port_owner import port_owner

BACKLOG = 2048
_TRIES = 200


@dataclass(frozen=True)
class Endpoint:
    """Where something is to listen; a port below 1 means any. `may_move`: the user has no stake in the port."""

    name: str
    host: str
    port: int
    may_move: bool = False
    remedy: str = ""


@dataclass(frozen=True)
class PortRange:
    """Both ends inclusive."""

    low: int
    high: int


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; raises OSError. Connections wait in its backlog until somebody accepts them."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def listen_all(endpoints: Iterable[Endpoint], ports: PortRange) -> dict[str, socket.socket]:
    """One socket per endpoint, by name; all or none. Fixed ports are bound first, so that no chosen one takes them.

    Raises PortTakenError, in one sentence, for a fixed port that is taken.
    """
    sockets: dict[str, socket.socket] = {}
    try:
        for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.may_move):
            sockets[endpoint.name] = _listen_at(endpoint, ports)
    except BaseException:
        close_all(sockets.values())
        raise
    return sockets


def close_all(sockets: Iterable[socket.socket]) -> None:
    for bound in sockets:
        bound.close()


def _listen_at(endpoint: Endpoint, ports: PortRange) -> socket.socket:
    if endpoint.port <= 0:
        return _listen_elsewhere(endpoint, ports)
    try:
        return listen(endpoint.host, endpoint.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not endpoint.may_move:
            raise _explain(endpoint, error) from error
    return _listen_elsewhere(endpoint, ports)


def _listen_elsewhere(endpoint: Endpoint, ports: PortRange) -> socket.socket:
    size = ports.high - ports.low + 1
    for port in random.sample(range(ports.low, ports.high + 1), min(size, _TRIES)):
        try:
            return listen(endpoint.host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _explain(endpoint, error) from error
    raise PortTakenError(
        f"No free port between {ports.low} and {ports.high} for {endpoint.name}: "
        f"widen the range with +port_range_low and +port_range_high."
    )


def _explain(endpoint: Endpoint, error: OSError) -> PortTakenError:
    where = f"Port {endpoint.port} on {endpoint.host or 'every interface'}, meant for {endpoint.name},"
    if error.errno != errno.EADDRINUSE:
        return PortTakenError(f"{where} can't be listened on ({error.strerror}): set another host or port.")
    owner = port_owner(endpoint.port)
    by = "another process" if owner is None else f"pid {owner.pid} ({owner.command})"
    return PortTakenError(f"{where} is taken by {by}: end that process, or set another port{endpoint.remedy}.")
