"""The components that can be found: agents, model servers, resources servers. Reading only; nothing here raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.catalog import config_files, is_hidden, trees
from nemo_gym.config.facts import Facts, kept_facts
from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS


@dataclass(frozen=True)
class AgentEntry:
    """An agent's folder. A self-contained agent brings its own tools; others use those of a resources server."""

    name: str
    path: Path
    config_paths: list[Path]
    self_contained: bool
    description: str | None

    @property
    def variants(self) -> dict[str, Path]:
        """Its configs by the flavor that selects them."""
        return {path.stem: path for path in self.config_paths}


@dataclass(frozen=True)
class ModelEntry:
    """A model server's config; `model_group` is its folder."""

    name: str
    model_group: str
    config_path: Path


@dataclass(frozen=True)
class ResourcesServerEntry:
    """A resources server's config; `path` is its folder."""

    name: str
    config_path: Path
    path: Path
    description: str | None
    domain: str | None


def discover_agents() -> dict[str, AgentEntry]:
    """Every agent by name: a folder with `app.py` or an agent's config. The better root's, where several have it."""
    entries: dict[str, AgentEntry] = {}
    with kept_facts() as facts:
        for folder in _folders(RESPONSES_API_AGENTS):
            told = {path: facts.of(path) for path in config_files(folder / "configs")}
            configs = {path: fact for path, fact in told.items() if RESPONSES_API_AGENTS in fact.server_types}
            if folder.name not in entries and (configs or (folder / "app.py").is_file()):
                entries[folder.name] = _agent(folder, configs)
    return dict(sorted(entries.items()))


def discover_models() -> dict[str, ModelEntry]:
    """Every model server's config by the name that selects it."""
    return {name: ModelEntry(name, folder.name, path) for name, folder, path in _named_configs(RESPONSES_API_MODELS)}


def discover_resources_servers() -> dict[str, ResourcesServerEntry]:
    """Every config that declares a resources server, by the name that selects it."""
    entries = {}
    with kept_facts() as facts:
        for name, folder, path in _named_configs(RESOURCES_SERVERS):
            told = facts.of(path)
            if RESOURCES_SERVERS in told.server_types:
                entries[name] = ResourcesServerEntry(name, path, folder, told.description, told.domain)
    return entries


def flavored_name(folder: str, stem: str) -> str:
    """What selects a component's config: its folder, with the flavor unless that is called the same."""
    return folder if folder == stem else f"{folder}/{stem}"


def _folders(tree: str) -> Iterator[Path]:
    """The folders of one kind of component, best root first."""
    for folder in trees(tree):
        yield from (child for child in sorted(folder.iterdir()) if child.is_dir() and not is_hidden(child))


def _named_configs(tree: str) -> list[tuple[str, Path, Path]]:
    """Name, folder and path of every config, sorted by name; the better root's, where several have it."""
    found: dict[str, tuple[str, Path, Path]] = {}
    for folder in _folders(tree):
        for path in config_files(folder / "configs"):
            name = flavored_name(folder.name, path.stem)
            found.setdefault(name, (name, folder, path))
    return sorted(found.values())


def _agent(folder: Path, configs: dict[Path, Facts]) -> AgentEntry:
    blocks = [block for facts in configs.values() for block in facts.agents]
    has_own_tools = any(block["own"] for block in blocks)
    composable = not blocks or (not has_own_tools and any(block["bound"] for block in blocks))
    descriptions = (block["description"] for block in blocks if block["description"] is not None)
    return AgentEntry(folder.name, folder, list(configs), not composable, next(descriptions, None))
