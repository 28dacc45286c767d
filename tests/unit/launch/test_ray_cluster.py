"""Ray only where something asks for it, with its address in the config for as long as the run lasts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.instances import server_instances
from nemo_gym.launch import ray_cluster
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.plan import plan_servers
from tests.unit.launch import toys


class FakeRay:
    """Remembers how it was initialised."""

    def __init__(self, *, initialized: bool = False, fails: bool = False) -> None:
        self.calls: list[Any] = []
        self._initialized = initialized
        self._fails = fails

    def is_initialized(self) -> bool:
        return self._initialized

    def init(self, **options: Any) -> None:
        if self._fails:
            raise ConnectionError("nobody there")
        self.calls.append(options)

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="10.0.0.1:6379")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(fake: FakeRay) -> FakeRay:
        monkeypatch.setattr(ray_cluster, "get_ray", lambda: fake)
        return fake

    return install


def test_who_wants_ray(root: Path) -> None:
    toys.add_component(root, "plain")
    toys.add_component(root, "parallel", "class X:\n    ray_enabled = True\n")
    plain = plan_servers(server_instances(toys.config_for(root, "plain")))
    parallel = plan_servers(server_instances(toys.config_for(root, "parallel")))
    assert not ray_cluster.is_wanted(plain, OmegaConf.create({}))
    assert ray_cluster.is_wanted([*plain, *parallel], OmegaConf.create({}))
    assert ray_cluster.is_wanted(plain, OmegaConf.create({"ray_head_node_address": "auto"}))


def test_a_cluster_we_start_is_ended_and_forgotten(use: Any) -> None:
    ray, config = use(FakeRay()), OmegaConf.create({})
    leave = ray_cluster.connect(config)
    assert config.ray_head_node_address == "10.0.0.1:6379"
    leave()
    assert config.ray_head_node_address is None
    assert [call if call == "shutdown" else call["include_dashboard"] for call in ray.calls] == [False, "shutdown"]


def test_a_cluster_we_join_is_left_alone(use: Any) -> None:
    ray, config = use(FakeRay()), OmegaConf.create({"ray_head_node_address": "auto"})
    leave = ray_cluster.connect(config)
    assert config.ray_head_node_address == "10.0.0.1:6379", "servers are told where it is"
    leave()
    assert config.ray_head_node_address == "auto"
    assert [call["address"] for call in ray.calls] == ["auto"]


def test_the_cluster_we_are_in_is_used(use: Any) -> None:
    ray, config = use(FakeRay(initialized=True)), OmegaConf.create({})
    ray_cluster.connect(config)()
    assert ray.calls == []


def test_a_cluster_that_cannot_be_joined_is_one_sentence(use: Any) -> None:
    use(FakeRay(fails=True))
    with pytest.raises(LaunchError, match=r"the cluster at h:1 can't be joined \(nobody there\)"):
        ray_cluster.connect(OmegaConf.create({"ray_head_node_address": "h:1"}))
