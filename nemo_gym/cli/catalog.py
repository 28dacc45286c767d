"""`gym list` and `gym search`: what can be run, and what it can be run with. Only files are read."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.given import given, is_on
from nemo_gym.cli.listing_table import print_listing
from nemo_gym.cli.utils import (
    exit_unknown_component,
    fuzzy_matches,
    print_no_matches,
    render_component_inspection,
)

if TYPE_CHECKING:
    from nemo_gym.config.components import AgentEntry, ModelEntry, ResourcesServerEntry

_KEYS = ("json", "query", "component_name")


@dataclass(frozen=True)
class Listing:
    """One kind of component: how it is called, its columns, and for each entry its row, fields to search, and cells."""

    noun: str
    things: str
    columns: Sequence[str]
    row: Callable[[Any], dict[str, Any]]
    searched: Callable[[Any], Iterable[str | None]]
    cells: Callable[[Any], Sequence[str]]
    inspect: Callable[[Any, bool], None]
    counts: bool = False


def list_agents() -> None:
    """List the agents, or say what one of them is."""
    from nemo_gym.agent_registry import discover_agents

    _show(
        discover_agents(),
        Listing(
            noun="agent",
            things="agents",
            columns=("Agent", "Composition", "Variants", "Description"),
            row=lambda agent: {
                "name": agent.name,
                "pattern": _pattern(agent),
                "self_contained": agent.self_contained,
                "variants": sorted(agent.variants),
                "description": _described(agent),
            },
            searched=lambda agent: (agent.name, _described(agent), *agent.variants),
            cells=lambda agent: (
                agent.name,
                _composition(agent),
                ", ".join(sorted(agent.variants)),
                _described(agent) or "",
            ),
            inspect=_inspect_agent,
        ),
    )


def list_models() -> None:
    """List the model servers, or say what one of them is."""
    from nemo_gym.model_registry import discover_models

    _show(
        discover_models(),
        Listing(
            noun="model",
            things="models",
            columns=("Model", "Model group", "For"),
            row=lambda model: {
                "name": model.name,
                "model": model.name,
                "model_group": model.model_group,
                "description": _purpose(model),
            },
            searched=lambda model: (model.name, model.model_group),
            cells=lambda model: (model.name, model.model_group, _purpose(model) or ""),
            inspect=_inspect_model,
        ),
    )


def list_resources_servers() -> None:
    """List the resources servers, or say what one of them is."""
    from nemo_gym.resources_server_registry import discover_resources_servers

    _show(
        discover_resources_servers(),
        Listing(
            noun="resources server",
            things="resources servers",
            columns=("Name", "Domain", "Description"),
            row=lambda server: {"name": server.name, "domain": server.domain, "description": server.description},
            searched=lambda server: (server.name, server.domain, server.description),
            cells=lambda server: (server.name, server.domain or "", server.description or ""),
            inspect=_inspect_resources_server,
            counts=True,
        ),
    )


def list_environments() -> None:
    """List the environments and benchmarks, or say what one of them is."""
    from nemo_gym.cli.environment_list import list_catalog

    list_catalog()


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a list as JSON."""
    print(json.dumps(rows, indent=2, ensure_ascii=False))


def titled(title: str, query: str | None, count: int | None, more: str = "") -> str:
    """The line above a table."""
    matching = f" matching '{query}'" if query else ""
    facts = ", ".join(filter(None, ["" if count is None else str(count), more]))
    return f"{title}{matching}" + (f" ({facts})" if facts else "")


def description_with_value(description: str | None, value: str | None) -> str | None:
    """What something is, and in a last line what it is good for."""
    return "\n".join(filter(None, [description, value and f"Value: {value}"])) or None


def _show(entries: Mapping[str, Any], listing: Listing) -> None:
    values = given(_KEYS)
    as_json, name, query = is_on(values, "json"), values.get("component_name"), values.get("query")
    if name is not None:
        if name not in entries:
            exit_unknown_component(listing.noun, name, entries)
        listing.inspect(entries[name], as_json)
        return
    found = [entry for entry in entries.values() if query is None or fuzzy_matches(query, *listing.searched(entry))]
    if not found:
        print_no_matches(listing.things, query, json_format=as_json)
    elif as_json:
        print_rows([listing.row(entry) for entry in found])
    else:
        counted = len(found) if listing.counts or query else None
        title = titled(listing.things.capitalize(), query, counted)
        print_listing(title, listing.columns, [listing.cells(entry) for entry in found])


def _composition(agent: "AgentEntry") -> str:
    return "self-contained" if agent.self_contained else "composable"


def _pattern(agent: "AgentEntry") -> str:
    return "B (self-contained)" if agent.self_contained else "A (composable)"


def _described(agent: "AgentEntry") -> str | None:
    return agent.description or _first_sentence(agent.path)


def _purpose(model: "ModelEntry") -> str | None:
    return _first_sentence(model.config_path.parents[1])


def _first_sentence(folder: Path) -> str | None:
    """The first sentence of a component's README, its links as plain text."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except OSError:
        return None
    paragraphs = (block.strip() for block in text.split("\n\n"))
    first = next(
        (block for block in paragraphs if block and not block.startswith(("#", "```", "|", "<", "-", "*"))), ""
    )
    sentence = " ".join(first.replace("**", "").split()).partition(". ")[0].rstrip(".:")
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence) or None


def _inspect_agent(agent: "AgentEntry", as_json: bool) -> None:
    variants = ", ".join(sorted(agent.variants)) or "none"
    details = {"path": str(agent.path), "composition": _pattern(agent), "variants": variants}
    render_component_inspection(
        name=agent.name, noun="agent", description=_described(agent), details=details, json_format=as_json
    )


def _inspect_model(model: "ModelEntry", as_json: bool) -> None:
    render_component_inspection(
        name=model.name,
        noun="model",
        description=_purpose(model),
        details={"config": str(model.config_path)},
        usage_example=f"gym env start --resources-server example_single_tool_call --model-type {model.name}",
        json_format=as_json,
    )


def _inspect_resources_server(server: "ResourcesServerEntry", as_json: bool) -> None:
    from nemo_gym.discovery import read_resources_server_value

    render_component_inspection(
        name=server.name,
        noun="resources server",
        domain=server.domain,
        description=description_with_value(server.description, read_resources_server_value(server.config_path)),
        details={"config": str(server.config_path)},
        usage_example=f"gym env start --resources-server {server.name} --model-type vllm_model",
        json_format=as_json,
    )
