"""A trainer's actor on a cluster: it starts servers, collects from them, and ends them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.e2e.harness import ROOT, is_alive
from tests.mock_provider import MockProvider
from tests.ports import free_port
from tests.ray.cluster import LocalCluster
from tests.ray.runs import AGENT, counting_row
from tests.ray.trainer import GymActor

CONFIGS = (
    "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml",
    "responses_api_models/openai_model/configs/openai_model.yaml",
)


@pytest.fixture
def ray(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Ray, with this process in the cluster as a trainer's driver is."""
    import ray

    monkeypatch.setenv("PYTHONBREAKPOINT", "")  # Ray sets it too, and leaves it
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address=cluster.address, log_to_driver=False)
    signal.signal(signal.SIGTERM, handler)  # Ray's own would outlive it, and with it no launch here hears a stop
    yield ray
    ray.shutdown()


def settings(provider: MockProvider, **more: Any) -> dict[str, Any]:
    return {
        "config_paths": [str(ROOT / path) for path in CONFIGS],
        "policy_base_url": provider.base_url,
        "policy_api_key": "k",
        "policy_model_name": "mock",
        "head_server": {"host": "127.0.0.1", "port": free_port()},
        **more,
    }


@pytest.mark.parametrize("placement", ["process", "ray"])
def test_a_trainer_s_actor_starts_servers_and_collects(
    ray: ModuleType, cluster: LocalCluster, provider: MockProvider, tmp_path: Path, placement: str
) -> None:
    actor_class = ray.remote(GymActor).options(
        num_cpus=0,
        max_concurrency=4,
        runtime_env={"py_executable": sys.executable, "env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    more = {"ray_head_node_address": cluster.address, "placement": placement}
    actor = actor_class.remote(settings(provider, **more), str(tmp_path))
    found = ray.get(actor.spin_up.remote(), timeout=120)
    assert not found["in_main_thread"]
    assert found["address"] == cluster.address
    assert found["mask"] == ([0, 0, 0] if placement == "process" else [])
    rows = [
        counting_row(number) | {"agent_ref": {"type": "responses_api_agents", "name": AGENT}} for number in range(8)
    ]
    results = ray.get(actor.run_rollouts.remote(rows), timeout=120)
    assert [result["reward"] for result in results] == [1.0] * 8
    assert [result["initial_count"] for result in results] == list(range(8))
    ray.get(actor.poll.remote())
    ray.get(actor.shutdown.remote(), timeout=60)
    assert not any(map(is_alive, found["pids"].values()))
    assert sum(node["Alive"] for node in ray.nodes()) == 3, (
        "the trainer's cluster is left alone, and there is no second one"
    )
    json.dumps(results)
