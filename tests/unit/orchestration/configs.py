"""Submit configs to start from."""

import copy
from pathlib import Path
from typing import Any

import yaml

from nemo_gym.orchestration.api import SubmitConfig
from nemo_gym.orchestration.loading import validated

VLLM: dict[str, Any] = {"type": "vllm", "container": "vllm:1", "model": "org/model"}
SLURM: dict[str, Any] = {"type": "slurm", "node_pools": {"gpu": {"partition": "batch", "gpus_per_node": 8}}}


def pools(**nodes: int) -> dict[str, Any]:
    """A Slurm compute with node pools of so many nodes."""
    return {
        "type": "slurm",
        "node_pools": {
            name: {"partition": "batch", "gpus_per_node": 8, "nodes": count} for name, count in nodes.items()
        },
    }


def content(
    *,
    services: dict[str, Any] | None = None,
    compute: dict[str, Any] | None = None,
    driver: dict[str, Any] | None = None,
    benchmark: dict[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """A whole config as plain data: one model, one node, one benchmark `mcqa`, but for what is given."""
    return copy.deepcopy(
        {
            "services": {"policy": VLLM} if services is None else services,
            "compute": {"cluster": SLURM if compute is None else compute},
            "driver": {"benchmarks": {"mcqa": benchmark or {"run": {"limit": 2}}}, **(driver or {})},
            "job": {"output_path": "/runs"},
            **others,
        }
    )


def config(**parts: Any) -> SubmitConfig:
    return validated(content(**parts), "submit.yaml")


def write(folder: Path, data: dict[str, Any], name: str = "submit.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path
