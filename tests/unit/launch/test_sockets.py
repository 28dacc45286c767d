"""Listening sockets: bound together, moved where they may be, explained where they may not."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, closing

import pytest

from nemo_gym.launch.errors import PortTakenError
from nemo_gym.launch.sockets import Endpoint, PortRange, close_all, listen, listen_all
from tests.unit.launch.toys import free_port

ANY = PortRange(20000, 60000)


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


def test_connections_wait_until_somebody_accepts() -> None:
    with listen("127.0.0.1", 0) as bound, ExitStack() as clients:
        for _ in range(300):
            clients.enter_context(closing(socket.create_connection(bound.getsockname(), timeout=5)))


def test_a_chosen_port_gives_way_to_a_fixed_one() -> None:
    port = free_port()
    sockets = listen_all(
        [Endpoint("chosen", "127.0.0.1", port, may_move=True), Endpoint("fixed", "127.0.0.1", port)], ANY
    )
    try:
        assert port_of(sockets["fixed"]) == port
        assert port_of(sockets["chosen"]) != port
    finally:
        close_all(sockets.values())


def test_a_chosen_port_is_chosen_within_the_range() -> None:
    with listen("127.0.0.1", 0) as taken, listen("127.0.0.1", 0) as also:
        free = free_port()
        low, high = sorted((free, port_of(taken)))
        [bound] = listen_all([Endpoint("x", "127.0.0.1", port_of(also), may_move=True)], PortRange(low, high)).values()
        with bound:
            assert low <= port_of(bound) <= high


def test_a_range_without_a_free_port_is_one_sentence() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(PortTakenError, match="widen the range with"):
        port = port_of(taken)
        listen_all([Endpoint("x", "127.0.0.1", port, may_move=True)], PortRange(port, port))


def test_a_fixed_port_that_is_taken_frees_what_was_bound() -> None:
    """B20: who holds the port, and the two ways out."""
    first = free_port()
    with listen("127.0.0.1", 0) as taken:
        endpoints = [Endpoint("a", "127.0.0.1", first), Endpoint("b", "127.0.0.1", port_of(taken), remedy=" so")]
        with pytest.raises(PortTakenError) as raised:
            listen_all(endpoints, ANY)
    message = str(raised.value)
    assert f" on 127.0.0.1, meant for b, is taken by pid {os.getpid()} (" in message
    assert message.endswith("): end that process, or set another port so.")
    listen("127.0.0.1", first).close()


def test_a_host_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(PortTakenError, match=r"Port \d+ on 192\.0\.2\.1, meant for x, can't be listened on"):
        listen_all([Endpoint("x", "192.0.2.1", free_port())], ANY)


def test_every_interface_and_ipv6() -> None:
    for host in ("0.0.0.0", "::1"):
        with listen(host, 0) as bound:
            assert bound.getsockname()[0] == host
