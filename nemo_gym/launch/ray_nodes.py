"""The nodes of a Ray cluster: which of them servers may be placed on, and which is next."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from nemo_gym.launch.errors import LaunchError

LOOPBACK = "127.0.0.1"
_CHECK_SECONDS = 60.0


@dataclass(frozen=True)
class Node:
    """`address` is where other nodes reach it."""

    id: str
    address: str
    cpus: float


@dataclass
class Nodes:
    """Of a cluster in which this process is. Nodes that lost a server are taken again only where no other is left."""

    ray: ModuleType
    own_address: str
    is_one_machine: bool
    _doubtful: set[str] = field(default_factory=set)

    @classmethod
    def of_cluster(cls, ray: ModuleType) -> Nodes:
        own = ray.util.get_node_ip_address()
        return cls(ray, own, all(node.address == own for node in alive(ray.nodes())))

    def bound_host(self, node: Node) -> str:
        """Where a server on a node listens: at the node's own address, on the loopback one if nobody else needs it."""
        return LOOPBACK if self.is_one_machine else node.address

    def doubt(self, node: Node) -> None:
        """Avoid a node from now on."""
        self._doubtful.add(node.id)

    def next(self, taken: Iterable[str], avoided: Iterable[str] = ()) -> Node | None:
        """The node with the fewest servers, given the ids of the nodes that have one; None when all are `avoided`.

        Nodes without CPUs are those on which nobody wants work, so they come last.
        """
        counts = Counter(taken)
        found = [node for node in self._usable() if node.id not in set(avoided)]

        def rank(node: Node) -> tuple[bool, bool, int, float, str, str]:
            return not node.cpus, node.id in self._doubtful, counts[node.id], -node.cpus, node.address, node.id

        return min(found, key=rank, default=None)

    def check_paths(self, wanted: Mapping[str, list[str]]) -> None:
        """Raise LaunchError for the first path, by node id, that isn't there on its node."""
        remote = self.ray.remote(os.path.exists)
        asked = [
            (id, path, remote.options(num_cpus=0, max_retries=0, scheduling_strategy=on_node(id)).remote(path))
            for id, paths in wanted.items()
            for path in paths
        ]
        try:
            answers = self.ray.get([reference for *_, reference in asked], timeout=_CHECK_SECONDS)
        except self.ray.exceptions.RayError as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise LaunchError(f"The cluster's nodes run no task ({why}): look at `ray status`.") from error
        addresses = {node.id: node.address for node in self._usable()}
        for (id, path, _), is_there in zip(asked, answers, strict=True):
            if not is_there:
                raise LaunchError(
                    f"Node {addresses.get(id, id)} has no {path}: with placement: ray this installation, its "
                    f"components and uv_venv_dir have to be on paths that every node sees."
                )

    def _usable(self) -> list[Node]:
        nodes = alive(self.ray.nodes())
        return [node for node in nodes if node.address == self.own_address] if self.is_one_machine else nodes


def alive(told: Iterable[Mapping[str, Any]]) -> list[Node]:
    """The live ones of what `ray.nodes()` tells."""
    return [
        Node(str(node["NodeID"]), str(node["NodeManagerAddress"]), float(node["Resources"].get("CPU", 0.0)))
        for node in told
        if node["Alive"]
    ]


def on_node(id: str) -> Any:
    """The scheduling strategy for exactly this node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(id, soft=False)
