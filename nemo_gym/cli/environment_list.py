"""`gym list environments` and `gym list benchmarks`: the catalog, filtered, searched, or one entry of it."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.catalog import description_with_value, print_rows, titled
from nemo_gym.cli.given import given, is_on
from nemo_gym.cli.listing_table import print_listing
from nemo_gym.cli.utils import (
    exit_unknown_component,
    fuzzy_matches,
    print_no_matches,
    render_component_inspection,
)
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.notices import warn

if TYPE_CHECKING:
    from nemo_gym.config.environment_catalog import EnvironmentCatalogEntry

FILTERS = ("domain", "catalog_kind", "modality", "licensing", "status", "lifecycle")
_KEYS = ("json", "query", "component_name", *FILTERS)
_FIELD = {"catalog_kind": "kind"}
_COLUMNS = ("Name", "Kind", "Status", "Lifecycle", "Domain", "Description")


def list_catalog() -> None:
    """List what the overrides in `sys.argv` ask for."""
    from nemo_gym.registry import discover_environment_catalog

    values = given(_KEYS)
    as_json, query, kind = is_on(values, "json"), values.get("query"), values.get("catalog_kind")
    if kind not in (None, "environment", "benchmark"):
        raise ConfigError(f"catalog_kind is {kind!r}: it must be environment or benchmark.")
    catalog = discover_environment_catalog()
    entries = [_checked(entry) for entry in catalog.values()]
    for entry in entries:
        if entry.problem is not None:
            warn(f"`{entry.name}` is listed as invalid: {entry.problem}")
    if (name := values.get("component_name")) is not None:
        _inspect(name, kind, entries, as_json)
        return
    _show(_filtered(entries, values), query, kind, as_json)


def _checked(entry: "EnvironmentCatalogEntry") -> "EnvironmentCatalogEntry":
    """The entry, invalid where its manifest has a field that can't be. Its config and data are not looked at."""
    if entry.manifest_path is None or entry.problem is not None:
        return entry
    from nemo_gym.environment.errors import ManifestError
    from nemo_gym.environment.manifest import load_manifest

    try:
        load_manifest(entry.manifest_path)
    except ManifestError as error:
        return replace(entry, status="invalid", problem=str(error))
    return entry


def _show(entries: Sequence["EnvironmentCatalogEntry"], query: str | None, kind: str | None, as_json: bool) -> None:
    things = f"{kind or 'environment'}s"
    found = [each for each in entries if not query or fuzzy_matches(query, each.name, each.domain, each.description)]
    if not found:
        print_no_matches(things, query, json_format=as_json)
    elif as_json:
        print_rows([catalog_row(entry) for entry in found])
    else:
        described = sum(entry.status not in ("no-manifest", "invalid") for entry in found)
        title = titled(things.capitalize(), query, len(found), f"manifests {described}/{len(found)}")
        print_listing(title, _COLUMNS, [_cells(entry) for entry in found])


def catalog_row(entry: "EnvironmentCatalogEntry") -> dict[str, Any]:
    """An entry as lists give it in JSON."""
    names = (
        "name", "kind", "status", "domain", "description", "version", "integration_profile", "modality", "licensing",
        "lifecycle",
    )  # fmt: skip
    row = {name: getattr(entry, name) for name in names}
    return {name: value for name, value in row.items() if name != "status" or value is not None}


def _cells(entry: "EnvironmentCatalogEntry") -> tuple[str, ...]:
    values = (entry.name, entry.kind, entry.status, entry.lifecycle, entry.domain, entry.description)
    return tuple(value or "" for value in values)


def _filtered(
    entries: Iterable["EnvironmentCatalogEntry"], values: Mapping[str, str]
) -> list["EnvironmentCatalogEntry"]:
    wanted = {_FIELD.get(key, key): values[key] for key in FILTERS if key in values}
    kept = list(entries)
    untold: set[str] = set()
    for field, value in wanted.items():
        if field != "status":
            untold |= {entry.name for entry in kept if getattr(entry, field) is None}
        kept = [entry for entry in kept if getattr(entry, field) == value]
    if untold:
        fields = ", ".join(field for field in wanted if field != "status")
        warn(f"{len(untold)} entries say nothing about {fields}, so they match no such filter.")
    return kept


def _inspect(name: str, kind: str | None, entries: Sequence["EnvironmentCatalogEntry"], as_json: bool) -> None:
    from nemo_gym.config.environment_catalog import entry_of_server

    named = [entry for entry in entries if entry.name == name]
    found = [entry for entry in named if kind in (None, entry.kind)]
    if named and not found:
        other = named[0].kind
        print(f"Error: {name} is no {kind}, but a {other}: see `gym list {other}s {name}`.", file=sys.stderr)
        raise SystemExit(1)
    if not found and (entry := entry_of_server(name, kind, {(each.kind, each.name): each for each in entries})):
        found = [entry]
    if not found:
        exit_unknown_component(
            kind or "environment", name, [entry.name for entry in entries if kind in (None, entry.kind)]
        )
    if len(found) > 1:
        raise ConfigError(f"{name} is both an environment and a benchmark: choose with --kind.")
    _print_entry(found[0], as_json)


def _print_entry(entry: "EnvironmentCatalogEntry", as_json: bool) -> None:
    from nemo_gym.discovery import read_resources_server_value

    selector = entry.resources_server_selector
    chosen = f"--resources-server {selector}" if selector else f"--{entry.kind} {entry.name}"
    render_component_inspection(
        name=entry.name,
        noun=entry.kind,
        domain=entry.domain,
        description=description_with_value(entry.description, read_resources_server_value(entry.config_path)),
        details=_details(entry),
        usage_example=f"gym env start {chosen} --model-type vllm_model",
        json_format=as_json,
    )


def _details(entry: "EnvironmentCatalogEntry") -> dict[str, str]:
    from nemo_gym.discovery import read_environment_details

    parts = read_environment_details(entry.config_path)
    told: dict[str, Any] = {
        "config": entry.config_path,
        "status": entry.status,
        "manifest": entry.manifest_path,
        "version": entry.version,
        "profile": entry.integration_profile,
        "modality": entry.modality,
        "licensing": entry.licensing,
        "lifecycle": entry.lifecycle,
        "resources servers": ", ".join(parts.resources_servers),
        "agent": ", ".join(parts.agents),
        "datasets": ", ".join(parts.datasets),
        "problem": entry.problem,
    }
    return {label: str(value) for label, value in told.items() if value}
