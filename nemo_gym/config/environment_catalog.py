"""Everything that can be run, as one list: environments, benchmarks, and resources servers that bring an agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nemo_gym.config.catalog import benchmark_name, config_files, declared_benchmarks, is_hidden
from nemo_gym.config.components import flavored_name
from nemo_gym.config.errors import ConfigError, RegistryError
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_AGENTS
from nemo_gym.config.metadata import datasets_in, declares, raw_config, read_config_metadata
from nemo_gym.config.roots import component_search_roots
from nemo_gym.config.yaml_files import load_yaml_mapping

Kind: TypeAlias = Literal["environment", "benchmark"]
Status: TypeAlias = Literal["experimental", "no-manifest"]
Key: TypeAlias = tuple[Kind, str]

MANIFEST_FILE_NAME = "manifest.yaml"
_TREES: dict[Kind, str] = {"environment": "environments", "benchmark": "benchmarks"}
_MANIFEST_TEXTS = ("name", "version", "kind", "integration_profile", "domain", "description", "modality")


@dataclass(frozen=True)
class EnvironmentCatalogEntry:
    """One thing to run. What only manifests say is None without one; `resources_server_selector` is what
    `--resources-server` takes, for an entry that is selected so."""

    name: str
    config_path: Path
    path: Path
    description: str | None
    domain: str | None
    kind: Kind
    status: Status | None = None
    manifest_path: Path | None = None
    version: str | None = None
    integration_profile: str | None = None
    modality: str | None = None
    licensing: str | None = None
    lifecycle: str | None = None
    resources_server_selector: str | None = None


def discover_environment_catalog() -> dict[Key, EnvironmentCatalogEntry]:
    """Every entry by kind and name, sorted by name. Earlier roots hide later ones.

    Raises RegistryError for a manifest whose name, kind or config contradicts the place it is in.
    """
    entries: dict[Key, EnvironmentCatalogEntry] = {}
    for root in component_search_roots():
        for kind in _TREES:
            for entry in _entries_of_tree(root, kind):
                entries.setdefault((entry.kind, entry.name), entry)
        for entry in _runnable_servers(root):
            short = (entry.resources_server_selector or "").rpartition("/")[2]
            if (entry.kind, short) not in entries:
                entries.setdefault((entry.kind, entry.name), entry)
    return dict(sorted(entries.items(), key=lambda item: (item[0][1].casefold(), item[0][0])))


def discover_environments() -> dict[str, EnvironmentCatalogEntry]:
    """The entries that are no benchmarks, by name."""
    return {name: entry for (kind, name), entry in discover_environment_catalog().items() if kind == "environment"}


def resolve_catalog_entry(
    name: str, kind: str | None = None, entries: Mapping[Key, EnvironmentCatalogEntry] | None = None
) -> EnvironmentCatalogEntry:
    """The entry of that name, and of that kind where one is given.

    Raises RegistryError when there is none, or when an environment and a benchmark have the name.
    """
    known = discover_environment_catalog() if entries is None else entries
    found = [entry for (of, called), entry in known.items() if called == name and kind in (None, of)]
    if len(found) == 1:
        return found[0]
    if found:
        raise RegistryError(f"{name} is both an environment and a benchmark: choose with --kind.")
    names = sorted({called for of, called in known if kind in (None, of)})
    what = kind or "environment or benchmark"
    raise RegistryError(f"There is no {what} `{name}` in any search root.{did_you_mean(name, names)}")


def _entries_of_tree(root: Path, kind: Kind) -> Iterator[EnvironmentCatalogEntry]:
    tree = root / _TREES[kind]
    if not tree.is_dir():
        return
    described: set[Path] = set()
    for path in sorted(tree.glob(f"**/{MANIFEST_FILE_NAME}")):
        manifest = None if is_hidden(path.parent) else _manifest(path)
        if manifest is not None:
            entry = _described(tree, kind, path, manifest)
            described.add(entry.config_path.resolve())
            yield entry
    for path in _plain_configs(tree, kind):
        if path.resolve() not in described:
            name = path.parent.name if kind == "environment" else benchmark_name(path.relative_to(tree))
            yield _undescribed(name, path, path.parent, kind)


def _plain_configs(tree: Path, kind: Kind) -> Iterator[Path]:
    if kind == "environment":
        yield from config_files(tree, "*/config.yaml")
        return
    for path in config_files(tree, "**/*.yaml"):
        if declared_benchmarks(path) == 1 or not _is_readable(path):
            yield path


def _manifest(path: Path) -> dict[str, Any] | None:
    """A manifest; None when it can't be read or lacks what every manifest says."""
    manifest = raw_config(path)
    complete = all(isinstance(manifest.get(key), str) and manifest[key].strip() for key in _MANIFEST_TEXTS)
    return manifest if complete and isinstance(manifest.get("config_path", ""), str) else None


def _described(tree: Path, kind: Kind, path: Path, manifest: dict[str, Any]) -> EnvironmentCatalogEntry:
    expected = path.parent.relative_to(tree).as_posix()
    if manifest["name"] != expected:
        raise RegistryError(f"{path} is named `{manifest['name']}`: in this place it must be `{expected}`.")
    if manifest["kind"] != kind:
        raise RegistryError(f"{path} is of the kind `{manifest['kind']}`: in {tree.name}/ it must be `{kind}`.")
    config_path = path.parent / manifest.get("config_path", "config.yaml")
    if not config_path.resolve().is_relative_to(tree.resolve()):
        raise RegistryError(f"{path}: config_path leads out of {tree}.")
    if not config_path.is_file():
        raise RegistryError(f"{path} describes {config_path}, which does not exist.")
    return EnvironmentCatalogEntry(
        name=expected,
        config_path=config_path,
        path=path.parent,
        description=manifest["description"],
        domain=manifest["domain"],
        kind=kind,
        status="experimental" if manifest.get("experimental", True) else None,
        manifest_path=path,
        version=manifest["version"],
        integration_profile=manifest["integration_profile"],
        modality=manifest["modality"],
        licensing=str(manifest.get("licensing", "unknown")),
        lifecycle=str(manifest.get("lifecycle", "active")),
    )


def _undescribed(
    name: str, config: Path, folder: Path, kind: Kind, selector: str | None = None
) -> EnvironmentCatalogEntry:
    domain, description = read_config_metadata(config)
    return EnvironmentCatalogEntry(
        name, config, folder, description, domain, kind, "no-manifest", resources_server_selector=selector
    )


def _runnable_servers(root: Path) -> Iterator[EnvironmentCatalogEntry]:
    """Resources servers whose config also has an agent with data sets."""
    for path in config_files(root / RESOURCES_SERVERS, "*/configs/*.yaml"):
        config = raw_config(path)
        datasets = list(datasets_in(config, RESPONSES_API_AGENTS))
        folder = path.parent.parent
        if datasets and declares(config, RESOURCES_SERVERS) and not is_hidden(folder):
            benchmarks = sum(dataset.get("type") == "benchmark" for dataset in datasets)
            kind: Kind = "benchmark" if benchmarks == 1 else "environment"
            selector = flavored_name(folder.name, path.stem)
            yield _undescribed(f"{RESOURCES_SERVERS}/{selector}", path, folder, kind, selector)


def _is_readable(path: Path) -> bool:
    try:
        load_yaml_mapping(path)
    except ConfigError:
        return False
    return True
