"""Everything that can be run, as one list: environments, benchmarks, and resources servers that bring an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nemo_gym.config.aliases import LEGACY_ENVIRONMENT_ALIASES
from nemo_gym.config.catalog import benchmark_name, config_files, is_hidden
from nemo_gym.config.components import flavored_name
from nemo_gym.config.errors import RegistryError
from nemo_gym.config.facts import MANIFEST_FILE_NAME, Facts, FactStore, kept_facts
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.notices import warn
from nemo_gym.config.roots import component_search_roots

Kind: TypeAlias = Literal["environment", "benchmark"]
Status: TypeAlias = Literal["experimental", "no-manifest", "invalid"]
Key: TypeAlias = tuple[Kind, str]

_TREES: dict[Kind, str] = {"environment": "environments", "benchmark": "benchmarks"}
_MANIFEST_TEXTS = ("name", "version", "kind", "integration_profile", "domain", "description", "modality")


@dataclass(frozen=True)
class EnvironmentCatalogEntry:
    """One thing to run. What only manifests say is None without one; `resources_server_selector` is what
    `--resources-server` takes, for an entry that is selected so. An entry of status `invalid` has a manifest that
    contradicts its place or can't be read; `problem` says how."""

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
    problem: str | None = None


def discover_environment_catalog(roots: Iterable[Path] | None = None) -> dict[Key, EnvironmentCatalogEntry]:
    """Every entry below the roots (default: the search roots) by kind and name, sorted by name. Earlier roots hide
    later ones."""
    entries: dict[Key, EnvironmentCatalogEntry] = {}
    with kept_facts() as facts:
        for root in component_search_roots() if roots is None else roots:
            for kind in _TREES:
                for entry in _entries_of_tree(root, kind, facts):
                    entries.setdefault((entry.kind, entry.name), entry)
            for entry in _runnable_servers(root, facts):
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

    Raises RegistryError when there is none, when its manifest is invalid, or when an environment and a benchmark have
    the name.
    """
    known = discover_environment_catalog() if entries is None else entries
    if (renamed := LEGACY_ENVIRONMENT_ALIASES.get(name)) is not None and (("environment", name) not in known):
        warn(f"the environment `{name}` is now called `{renamed}`: use that name.")
        name = renamed
    found = [entry for (of, called), entry in known.items() if called == name and kind in (None, of)]
    if len(found) == 1:
        if found[0].problem is not None:
            raise RegistryError(found[0].problem)
        return found[0]
    if found:
        raise RegistryError(f"{name} is both an environment and a benchmark: choose with --kind.")
    names = sorted({called for of, called in known if kind in (None, of)})
    what = kind or "environment or benchmark"
    if entry := entry_of_server(name, kind, known):
        server = f"the resources server `{entry.name}`: `--resources-server {entry.resources_server_selector}`"
        raise RegistryError(f"There is no {what} `{name}`, but {server} selects it.")
    raise RegistryError(f"There is no {what} `{name}` in any search root.{did_you_mean(name, names)}")


def entry_of_server(
    name: str, kind: str | None, entries: Mapping[Key, EnvironmentCatalogEntry]
) -> EnvironmentCatalogEntry | None:
    """The entry of the resources server that `name` means without the folder it is listed with."""
    server = f"{RESOURCES_SERVERS}/{name}"
    return next((entry for (of, called), entry in entries.items() if called == server and kind in (None, of)), None)


def _entries_of_tree(root: Path, kind: Kind, facts: FactStore) -> Iterator[EnvironmentCatalogEntry]:
    tree = root / _TREES[kind]
    if not tree.is_dir():
        return
    described: set[Path] = set()
    for path in sorted(tree.glob(f"**/{MANIFEST_FILE_NAME}")):
        if not is_hidden(path.parent):
            entry = _described(tree, kind, path, facts)
            described.add(entry.config_path.resolve())
            yield entry
    for path in _plain_configs(tree, kind, facts):
        if path.resolve() not in described:
            name = path.parent.name if kind == "environment" else benchmark_name(path.relative_to(tree))
            yield _undescribed(name, path, path.parent, kind, facts.of(path))


def _plain_configs(tree: Path, kind: Kind, facts: FactStore) -> Iterator[Path]:
    if kind == "environment":
        yield from config_files(tree, "*/config.yaml")
        return
    for path in config_files(tree, "**/*.yaml"):
        told = facts.of(path)
        if told.benchmarks == 1 or not told.is_readable:
            yield path


def _described(tree: Path, kind: Kind, path: Path, facts: FactStore) -> EnvironmentCatalogEntry:
    name = path.parent.relative_to(tree).as_posix()
    manifest = facts.of(path).manifest
    problem = _problem(manifest, tree, kind, path)
    if manifest is None or problem is not None:
        config = path.parent / "config.yaml"
        told = facts.of(config)
        return EnvironmentCatalogEntry(
            name, config, path.parent, told.description, told.domain, kind, "invalid", path, problem=problem
        )
    return EnvironmentCatalogEntry(
        name=name,
        config_path=path.parent / manifest.get("config_path", "config.yaml"),
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


def _problem(manifest: Mapping[str, Any] | None, tree: Path, kind: Kind, path: Path) -> str | None:
    """Why a manifest describes nothing, if so. `gym env validate` looks at the rest."""
    if manifest is None:
        return f"{path} can't be read as YAML."
    missing = [key for key in _MANIFEST_TEXTS if not isinstance(manifest.get(key), str) or not manifest[key].strip()]
    if missing:
        return f"{path} says nothing about: {', '.join(missing)}."
    expected = path.parent.relative_to(tree).as_posix()
    if manifest["name"] != expected:
        return f"{path} is named `{manifest['name']}`: in this place it must be `{expected}`."
    if manifest["kind"] != kind:
        return f"{path} is of the kind `{manifest['kind']}`: in {tree.name}/ it must be `{kind}`."
    config = manifest.get("config_path", "config.yaml")
    if not isinstance(config, str):
        return f"{path}: config_path must be the path of a file."
    if not (path.parent / config).resolve().is_relative_to(tree.resolve()):
        return f"{path}: config_path leads out of {tree}."
    if not (path.parent / config).is_file():
        return f"{path} describes {path.parent / config}, which does not exist."
    return None


def _undescribed(
    name: str, config: Path, folder: Path, kind: Kind, facts: Facts, selector: str | None = None
) -> EnvironmentCatalogEntry:
    return EnvironmentCatalogEntry(
        name,
        config,
        folder,
        facts.description,
        facts.domain,
        kind,
        "no-manifest",
        resources_server_selector=selector,
    )


def _runnable_servers(root: Path, facts: FactStore) -> Iterator[EnvironmentCatalogEntry]:
    """Resources servers whose config also has an agent with data sets."""
    for path in config_files(root / RESOURCES_SERVERS, "*/configs/*.yaml"):
        told, folder = facts.of(path), path.parent.parent
        if told.agent_datasets and RESOURCES_SERVERS in told.server_types and not is_hidden(folder):
            kind: Kind = "benchmark" if told.agent_datasets.count("benchmark") == 1 else "environment"
            selector = flavored_name(folder.name, path.stem)
            yield _undescribed(f"{RESOURCES_SERVERS}/{selector}", path, folder, kind, told, selector)
