"""The listening socket of a server process: inherited from the launcher, or its own."""

from __future__ import annotations

import errno
import os
import socket

from nemo_gym.config.handover import LISTEN_FD_ENV, READY_FD_ENV
from nemo_gym.serve.errors import BusyPortError, ServeError

BACKLOG = 2048


def listener(host: str, port: int) -> socket.socket:
    """The socket to serve on: the one handed down, else one bound to `host` and `port`."""
    inherited = take_descriptor(LISTEN_FD_ENV)
    if inherited is not None:
        return socket.socket(fileno=inherited)
    return bind(host, port)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; BusyPortError or ServeError says in one sentence why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _explained(error, host, port) from error
    return sock


def _explained(error: OSError, host: str, port: int) -> ServeError:
    if error.errno == errno.EADDRINUSE:
        return BusyPortError(
            f"Port {port} on {host} is in use: stop what listens there (`gym env status` lists Gym's own servers) or "
            f"choose another port."
        )
    return ServeError(f"Can't listen on {host}:{port}: {error.strerror or error}.")


def report_ready(descriptor: int | None) -> None:
    """Tell whoever waits at the other end of the pipe that requests are answered now."""
    if descriptor is not None:
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def take_ready_descriptor() -> int | None:
    """The pipe to report to, if the launcher gave one."""
    return take_descriptor(READY_FD_ENV)


def take_descriptor(variable: str) -> int | None:
    """A descriptor named by an environment variable; the variable is removed, so that no grandchild finds it."""
    text = os.environ.pop(variable, "")
    if not text:
        return None
    if not text.isdigit():
        raise ServeError(f"{variable} is {text!r}: it must be the number of an inherited descriptor.")
    os.set_inheritable(int(text), False)
    return int(text)
