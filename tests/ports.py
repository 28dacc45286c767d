"""Ports for tests that must name one before anything listens."""

import itertools
import os
import random
import socket

# Neither the system's own choice, which is above, nor Gym's, which is below: nobody takes one meanwhile.
_LOW, _HIGH = 30_000, 32_767
_AT_MOST = 8
_SHARE = (_HIGH - _LOW) // _AT_MOST
_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
_ports = range(_LOW, _HIGH)
if _worker:
    _first = _LOW + int(_worker.removeprefix("gw")) % _AT_MOST * _SHARE
    _ports = range(_first, _first + _SHARE)
_turns = itertools.count(random.SystemRandom().randrange(len(_ports)))


def free_port() -> int:
    """One that nobody else who runs tests in this session is given."""
    for turn in itertools.islice(_turns, len(_ports)):
        port = _ports[turn % len(_ports)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"No port of {_ports} is free.")
