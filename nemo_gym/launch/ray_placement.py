"""`placement: ray` as a launch sees it: actors taken for all servers, and everybody told where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nemo_gym.config.handover import ADDRESSES_FILE_NAME, read_token, write_config
from nemo_gym.config.notices import warn
from nemo_gym.config.placement import put_addresses, set_servers_move
from nemo_gym.config.replacing import write_private
from nemo_gym.launch.endpoints import ModelEndpoint
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.placement import listed
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.ray_nodes import Nodes
from nemo_gym.launch.ray_seats import RaySeats, addresses_text
from nemo_gym.launch.run_directory import RunDirectory
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.launch.supervisor import Supervisor
from nemo_gym.launch.venvs import Venv
from nemo_gym.serve.guards import is_loopback
from nemo_gym.serve.ray_cluster import get_ray

if TYPE_CHECKING:
    from omegaconf import DictConfig

Addresses = Mapping[str, tuple[str, int]]


def take_seats(
    config: DictConfig,
    plans: Sequence[ServerPlan],
    venvs: Mapping[Path, Venv],
    settings: LaunchSettings,
    directory: RunDirectory,
    supervisor: Supervisor,
    moved: Callable[[Addresses], None],
) -> RaySeats:
    """Actors for all servers in the cluster this process is in. They listen; nothing serves yet.

    Addresses are kept in the config, its file and the run's own file; `moved` is told after that, now and whenever a
    server comes to another node. Raises LaunchError.
    """

    def announce(addresses: Addresses) -> None:
        put_addresses(config, addresses)
        set_servers_move(config)
        write_config(directory.config_file, config)
        write_private(directory.path / ADDRESSES_FILE_NAME, addresses_text(addresses))
        moved(addresses)

    seats = RaySeats(
        nodes=Nodes.of_cluster(get_ray()),
        plans=plans,
        venvs=venvs,
        token=read_token(directory.path) or "",
        ports=settings.ports,
        uv_variables=settings.uv_variables,
        logs=supervisor.logs,
        config=lambda: directory.config_file.read_text(encoding="utf-8"),
        announce=announce,
        on_death=supervisor.note_death,
        report=warn,
    )
    try:
        seats.take_all()
    except BaseException:
        seats.close(0.0)
        raise
    return seats


def summary(seats: RaySeats) -> str:
    """Which servers are on which node."""
    by_node: dict[str, list[str]] = {}
    for plan in seats.plans:
        by_node.setdefault(seats.node_of(plan.name), []).append(plan.name)
    return "; ".join(f"{listed(names)} on node {address}" for address, names in by_node.items()) + " (placement: ray)"


def check_endpoints(seats: RaySeats, endpoints: Sequence[ModelEndpoint]) -> None:
    """Raise LaunchError for an endpoint that every node would look for on itself."""
    nodes = {seats.node_of(plan.name) for plan in seats.plans} - {seats.nodes.own_address}
    if all(map(is_loopback, nodes)):
        return
    for endpoint in endpoints:
        if is_loopback(urlsplit(endpoint.url).hostname or ""):
            raise LaunchError(
                f"{endpoint.describe()} is an address of this machine only, and servers are placed on other nodes: "
                f"give one that every node reaches."
            )
