"""What a sandbox is described with."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.sandbox import SandboxResources, SandboxSpec, SandboxStatus, rewrite_image
from nemo_gym.sandbox.utils import CPU_CAP_ENV_VARS, cpu_cap_env


def test_resources_take_numbers_in_text() -> None:
    assert SandboxResources.from_mapping({"cpu": "1.5", "memory_mib": "512", "gpu": None}) == SandboxResources(
        cpu=1.5, memory_mib=512
    )


def test_no_resources_are_the_providers_choice() -> None:
    assert SandboxResources.from_mapping(None) == SandboxResources()


def test_unknown_resources_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="memory_gib"):
        SandboxResources.from_mapping({"memory_gib": 1})


def test_resources_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="no numbers"):
        SandboxResources.from_mapping({"cpu": "many"})


def test_a_spec_reads_resources_and_ports() -> None:
    spec = SandboxSpec(resources={"cpu": 2}, ports=["8080", 9090])  # type: ignore[list-item]
    assert spec.resources == SandboxResources(cpu=2.0)
    assert spec.ports == (8080, 9090)


@pytest.mark.parametrize("ports", [[0], [65536], [True], ["80a"], [1.5], [80, "80"], [None]])
def test_ports_that_are_none_are_refused(ports: list[Any]) -> None:
    with pytest.raises(ValueError, match="ort"):
        SandboxSpec(ports=ports)


def test_a_status_is_plain_text() -> None:
    assert f"{SandboxStatus.RUNNING.value}" == "running"
    assert SandboxStatus("paused") is SandboxStatus.PAUSED


def test_an_image_is_rewritten_by_the_first_prefix_that_fits() -> None:
    rewrites = [{"from": "docker.io/", "to": "mirror/"}, {"from": "docker.io/library/", "to": "other/"}]
    assert rewrite_image("docker.io/library/python", rewrites) == "mirror/library/python"
    assert rewrite_image("ghcr.io/x", rewrites) == "ghcr.io/x"
    assert rewrite_image(None, rewrites) is None


def test_threads_are_capped_to_whole_cpus() -> None:
    assert cpu_cap_env(2.7) == dict.fromkeys(CPU_CAP_ENV_VARS, "2")
    assert cpu_cap_env(0.5)["OMP_NUM_THREADS"] == "1"
    assert cpu_cap_env(None) == {}
    assert len(set(CPU_CAP_ENV_VARS)) == 19
