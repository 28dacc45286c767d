"""Which port a server gets."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym.config.errors import ConfigError, NoPortLeftError
from nemo_gym.config.keys import DEFAULT_PORT_RANGE_HIGH, DEFAULT_PORT_RANGE_LOW

UNPROBED_PORT = -1
"""What a server without a port gets where nothing may be probed."""

chosen_ports: set[int] = set()
"""Ports chosen here, not by a user: whoever binds them may take others instead."""

_WILDCARDS = frozenset({"", "0.0.0.0", "::"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# Not the module's shared generator: a trainer that seeds it would give two runs the same ports.
_choice = random.SystemRandom()


@dataclass(frozen=True)
class PortRange:
    """The ports to choose from, both ends included."""

    low: int = DEFAULT_PORT_RANGE_LOW
    high: int = DEFAULT_PORT_RANGE_HIGH

    def __contains__(self, port: int) -> bool:
        return self.low <= port <= self.high


def find_free_port(ports: PortRange, disallowed: Collection[int], max_retries: int = 50) -> int:
    """A random port of the range that isn't disallowed and that can be bound on all interfaces now.

    Raises NoPortLeftError when none is left, or after `max_retries` ports that were taken.
    """
    candidates = sorted(set(range(ports.low, ports.high + 1)).difference(disallowed))
    if not candidates:
        raise NoPortLeftError(f"No port is left between {ports.low} and {ports.high}: widen port_range_low/high.")
    for port in _choice.sample(candidates, min(max_retries, len(candidates))):
        if _can_be_bound(port):
            return port
    raise NoPortLeftError(f"No free port found between {ports.low} and {ports.high} in {max_retries} tries.")


def assign_addresses(
    blocks: Mapping[str, Any],
    default_host: str,
    ports: PortRange,
    disallowed: Iterable[int],
    *,
    probe: bool = True,
) -> list[int]:
    """Give every server block (by instance name, changed in place) a host and a port where it has none.

    Explicit ports are kept clear of. Gives the disallowed ports with every port of these blocks appended.
    """
    taken = list(disallowed)
    reserved = {*taken, *(int(block.get("port")) for block in blocks.values() if block.get("port"))}
    for block in blocks.values():
        if not block.get("host"):
            block["host"] = default_host
        if not block.get("port"):
            block["port"] = find_free_port(ports, reserved) if probe else UNPROBED_PORT
            chosen_ports.add(int(block["port"]))
        taken.append(int(block["port"]))
        reserved.add(int(block["port"]))
    return [port for port in taken if port != UNPROBED_PORT]


def explicit_port_problems(addresses: Iterable[tuple[str, str, Any]]) -> list[ConfigError]:
    """An error per port that can't be one, and per pair that can't both listen; addresses are (name, host, port)."""
    problems: list[ConfigError] = []
    seen: list[tuple[str, str, int]] = []
    for name, host, port in addresses:
        if not isinstance(port, int) or not 0 < port < 65536:
            problems.append(ConfigError(f"The port of `{name}` must be a number from 1 to 65535, not {port!r}."))
            continue
        problems += [
            ConfigError(f"`{other}` and `{name}` both have port {port}: give one of them another port, or none.")
            for other, other_host, other_port in seen
            if other_port == port and _hosts_overlap(host, other_host)
        ]
        seen.append((name, host, port))
    return problems


def _hosts_overlap(one: str, other: str) -> bool:
    return one == other or bool({one, other} & _WILDCARDS) or {one, other} <= _LOOPBACK


def _can_be_bound(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server will: a port whose last connection lingers is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
