"""A Ray cluster of several nodes on this machine, each at an address of its own and ended with the test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

OBJECT_STORE_BYTES = 80_000_000
RAY_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


class LocalCluster:
    """Its head takes no servers; `nodes` are those that do, called by their addresses.

    Its processes get `variables` too.
    """

    def __init__(self, folder: Path, nodes: int, variables: Mapping[str, str]) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        self._variables = variables
        self._shared: dict[str, Any] = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
        self._shared |= {"temp_dir": str(folder / "ray")}
        with _set(variables):
            self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **self._shared})
            self._nodes = {address: self._added(address) for address in (f"127.0.0.{n + 2}" for n in range(nodes))}
        self._cluster.wait_for_nodes(timeout=60)

    def _added(self, address: str) -> Any:
        return self._cluster.add_node(num_cpus=1, node_ip_address=address, wait=False, **self._shared)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def addresses(self) -> list[str]:
        """Of the nodes that take servers."""
        return list(self._nodes)

    def processes_of(self, address: str) -> list[psutil.Process]:
        """Everything that runs on a node, servers included."""
        roots = [each.process for each in self._node_processes(address)]
        found: dict[int, psutil.Process] = {}
        for root in roots:
            process = psutil.Process(root.pid)
            for each in (process, *process.children(recursive=True)):
                found[each.pid] = each
        return list(found.values())

    def lose(self, address: str) -> None:
        """The node is gone at once, with everything on it."""
        for process in self.processes_of(address):
            process.send_signal(signal.SIGKILL)

    def freeze(self, address: str) -> list[psutil.Process]:
        """The node answers nobody any more, as when its network is cut off; what was stopped."""
        frozen = self.processes_of(address)
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        return frozen

    def replace_lost(self) -> None:
        """Where a node was lost there is another one at its address, once this returns."""
        gone = [address for address, node in self._nodes.items() if not node.remaining_processes_alive()]
        with _set(self._variables):
            for address in gone:
                self._cluster.remove_node(self._nodes[address], allow_graceful=False)
                self._nodes[address] = self._added(address)
        for left in (self.folder / "run").glob("*/ray-*") if gone else ():
            shutil.rmtree(left)
        self._cluster.wait_for_nodes(timeout=60)

    def end(self) -> None:
        self._cluster.shutdown()  # type: ignore[no-untyped-call]

    def _node_processes(self, address: str) -> Iterator[Any]:
        for kinds in self._nodes[address].all_processes.values():
            yield from kinds


@contextmanager
def local_cluster(nodes: int, environment: Mapping[str, str] | None = None) -> Iterator[LocalCluster]:
    """A cluster whose processes get these variables too. Nothing of it is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="gr-"))  # a short path: Ray has sockets in it
    (folder / "run").mkdir(mode=0o700)
    variables = {**RAY_ENVIRONMENT, "XDG_RUNTIME_DIR": str(folder / "run"), **(environment or {})}
    cluster: LocalCluster | None = None
    try:
        cluster = LocalCluster(folder, nodes, variables)
        yield cluster
    finally:
        if cluster is not None:
            cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """What Ray's processes inherit, and nobody else; nor does the stop handler stay that Ray takes for each node."""
    before = {name: os.environ.get(name) for name in variables}
    handler = signal.getsignal(signal.SIGTERM)
    os.environ.update(variables)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
