"""Which node of a cluster a server is placed on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.ray_nodes import Node, Nodes


def id_of(address: str) -> str:
    """A node's id, in the form that Ray insists on."""
    return address.encode().hex().ljust(56, "0")


class FakeRay:
    """A cluster of the given nodes: address, CPUs, whether it is alive. Tasks run at once, and find `present` paths."""

    def __init__(self, *nodes: tuple[str, float, bool], present: frozenset[str] = frozenset()) -> None:
        self._nodes = nodes
        self.present = present
        self.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")
        self.exceptions = SimpleNamespace(RayError=RuntimeError)
        self.asked: list[tuple[str, str]] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": id_of(address), "NodeManagerAddress": address, "Alive": alive, "Resources": {"CPU": cpus}}
            for address, cpus, alive in self._nodes
        ]

    def remote(self, _: Any) -> Any:
        def options(*, scheduling_strategy: Any, **_: Any) -> Any:
            def ask(path: str) -> bool:
                self.asked.append((scheduling_strategy.node_id, path))
                return path in self.present

            return SimpleNamespace(remote=ask)

        return SimpleNamespace(options=options)

    def get(self, references: list[Any], timeout: float) -> list[Any]:
        return references


def spread(nodes: Nodes, count: int) -> list[str]:
    taken: list[Node] = []
    for _ in range(count):
        node = nodes.next([each.id for each in taken])
        assert node is not None
        taken.append(node)
    return [node.address for node in taken]


def test_servers_are_spread_evenly_over_nodes_that_take_work() -> None:
    ray: Any = FakeRay(("10.0.0.1", 0, True), ("10.0.0.3", 4, True), ("10.0.0.2", 4, True), ("10.0.0.4", 4, False))
    assert spread(Nodes.of_cluster(ray), 5) == ["10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.3", "10.0.0.2"]


def test_the_head_takes_servers_where_there_is_nothing_else() -> None:
    ray: Any = FakeRay(("10.0.0.1", 0, True))
    nodes = Nodes.of_cluster(ray)
    assert spread(nodes, 2) == ["10.0.0.1"] * 2
    assert nodes.next([], [id_of("10.0.0.1")]) is None


def test_a_node_that_lost_a_server_is_the_last_choice() -> None:
    ray: Any = FakeRay(("10.0.0.2", 4, True), ("10.0.0.3", 4, True))
    nodes = Nodes.of_cluster(ray)
    lost = nodes.next([])
    assert lost is not None and lost.address == "10.0.0.2"
    nodes.doubt(lost)
    assert spread(nodes, 3) == ["10.0.0.3"] * 3
    again = nodes.next([], [id_of("10.0.0.3")])
    assert again is not None and again.address == "10.0.0.2"


def test_servers_listen_where_others_reach_them_and_nowhere_else() -> None:
    several: Any = FakeRay(("10.0.0.1", 1, True), ("10.0.0.2", 1, True))
    nodes = Nodes.of_cluster(several)
    assert nodes.bound_host(Node("b", "10.0.0.2", 1)) == "10.0.0.2"
    one: Any = FakeRay(("10.0.0.1", 1, True), ("10.0.0.1", 1, True))
    nodes = Nodes.of_cluster(one)
    assert nodes.bound_host(Node("a", "10.0.0.1", 1)) == "127.0.0.1"
    one._nodes = (("10.0.0.1", 1, True), ("10.0.0.2", 8, True))
    joined_later = nodes.next([])
    assert joined_later is not None and joined_later.address == "10.0.0.1", "the others can't be reached from there"


def test_a_path_that_a_node_lacks_is_named() -> None:
    ray: Any = FakeRay(("10.0.0.1", 1, True), ("10.0.0.2", 1, True), present=frozenset({"/base/python"}))
    nodes = Nodes.of_cluster(ray)
    nodes.check_paths({id_of("10.0.0.1"): ["/base/python"], id_of("10.0.0.2"): ["/base/python"]})
    assert ray.asked == [(id_of("10.0.0.1"), "/base/python"), (id_of("10.0.0.2"), "/base/python")]
    with pytest.raises(LaunchError, match=r"Node 10.0.0.2 has no /venvs/x/bin/python: with placement: ray"):
        nodes.check_paths(
            {id_of("10.0.0.1"): ["/base/python"], id_of("10.0.0.2"): ["/base/python", "/venvs/x/bin/python"]}
        )
