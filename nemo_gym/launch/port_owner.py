"""Who listens on a port."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym.launch.command_line import shown_command


@dataclass(frozen=True)
class PortOwner:
    """A process and its command line, cut to one readable line."""

    pid: int
    command: str


_LONGEST_COMMAND = 120


def port_owner(port: int) -> PortOwner | None:
    """The listening process; None when there is none or it is somebody else's and can't be looked at."""
    import psutil

    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        return None
    for connection in connections:
        address = connection.laddr
        if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
            return _describe(connection.pid)
    return None


def _describe(pid: int) -> PortOwner | None:
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return PortOwner(pid, "unknown command")
    command = shown_command(words)
    return PortOwner(pid, command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 1] + "…")
