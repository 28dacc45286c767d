"""What the text of a config says about its servers, for lists in READMEs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.config.entries import implementation_blocks
from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_AGENTS
from nemo_gym.config.metadata import datasets_in

__all__ = ["AgentDatasetsMetadata", "ResourcesServerMetadata", "visit_agent_datasets", "visit_resources_server"]


@dataclass(frozen=True)
class ResourcesServerMetadata:
    """The informational fields of a resources server's block."""

    domain: str | None = None
    description: str | None = None
    value: str | None = None
    verified: bool = False
    verified_url: str | None = None


@dataclass(frozen=True)
class AgentDatasetsMetadata:
    """The data sets that the agents of a config declare: their types, the train license, where they come from."""

    types: list[str] = field(default_factory=list)
    license: str | None = None
    huggingface_repo_id: str | None = None


def visit_resources_server(data: Mapping[str, Any]) -> ResourcesServerMetadata:
    """The fields of the first resources server in a config's plain data."""
    for _, _, block in implementation_blocks(data, RESOURCES_SERVERS):
        return ResourcesServerMetadata(
            block.get("domain"),
            block.get("description"),
            block.get("value"),
            block.get("verified") is True,
            block.get("verified_url"),
        )
    return ResourcesServerMetadata()


def visit_agent_datasets(data: Mapping[str, Any]) -> AgentDatasetsMetadata:
    """What the agents in a config's plain data declare to run on."""
    datasets = list(datasets_in(data, RESPONSES_API_AGENTS))
    train = next((dataset for dataset in datasets if dataset.get("type") == "train"), {})
    source = train.get("source") or train.get("huggingface_identifier")
    repository = source.get("repo_id") if isinstance(source, Mapping) else None
    return AgentDatasetsMetadata([str(dataset.get("type")) for dataset in datasets], train.get("license"), repository)
