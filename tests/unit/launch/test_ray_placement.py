"""What a launch says of servers that are actors, and which model endpoints they can't reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym.launch.endpoints import ModelEndpoint
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.ray_placement import check_endpoints, summary


def seats(own: str, **nodes: str) -> Any:
    """Servers by name, with the address of the node each is on."""
    plans = [SimpleNamespace(name=name) for name in nodes]
    return SimpleNamespace(plans=plans, node_of=nodes.__getitem__, nodes=SimpleNamespace(own_address=own))


def endpoint(url: str) -> ModelEndpoint:
    return ModelEndpoint(url, ("policy_base_url",))


def test_servers_are_told_by_node() -> None:
    told = summary(seats("10.0.0.1", a="10.0.0.2", b="10.0.0.3", c="10.0.0.2"))
    assert told == "a and c on node 10.0.0.2; b on node 10.0.0.3 (placement: ray)"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://localhost:8000/v1", "http://[::1]:8000/v1"])
def test_an_endpoint_of_this_machine_is_refused_where_servers_are_on_others(url: str) -> None:
    elsewhere = seats("10.0.0.1", a="10.0.0.1", b="10.0.0.2")
    with pytest.raises(LaunchError, match="is an address of this machine only"):
        check_endpoints(elsewhere, [endpoint("http://10.0.0.9/v1"), endpoint(url)])
    check_endpoints(elsewhere, [endpoint("http://10.0.0.9/v1")])
    check_endpoints(seats("10.0.0.1", a="10.0.0.1"), [endpoint(url)])
    check_endpoints(seats("10.0.0.1", a="127.0.0.2"), [endpoint(url)])
