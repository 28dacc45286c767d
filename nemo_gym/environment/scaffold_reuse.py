"""Building on a verifier that is there already."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.catalog import trees
from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.environment_servers import environment_server_agent_names, environment_server_agent_refs
from nemo_gym.config.keys import (
    COPY_KEY_NAME,
    ENVIRONMENT_SERVER_ROUTES_KEY_NAME,
    ENVIRONMENT_SERVERS,
    INHERIT_FROM_KEY_NAME,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
)
from nemo_gym.config.metadata import composed_file, raw_config
from nemo_gym.config.roots import component_search_roots
from nemo_gym.environment.errors import ScaffoldError

_FIXTURE = "VERIFIER_FIXTURE"
_FIXTURE_MAKERS = ("VerifierFixture", "server_fixture", "episode_fixture")
SIMPLE_AGENT = "simple_agent"


@dataclass(frozen=True)
class ReusedVerifier:
    """A resources server's instances to build on. `environment_refs` are the fields that name the agent,
    `taken` the names its config uses."""

    name: str
    config: str
    resources_instance: str
    agent_instance: str | None
    environment_instance: str | None
    environment_kind: str | None
    environment_refs: tuple[str, ...]
    taken: frozenset[str]
    has_datasets: bool


def find_reused_verifier(name: str, root: Path) -> ReusedVerifier:
    """The verifier of a resources server below `root` or a search root, its files only read.

    Raises ScaffoldError for one that can't be built on.
    """
    relative = Path(RESOURCES_SERVERS, name, "configs", f"{name}.yaml")
    home = next((base for base in (root, *component_search_roots()) if (base / relative).is_file()), None)
    if home is None:
        raise ScaffoldError(f"There is no {relative} below {root} or any search root to take the verifier from.")
    path = home / relative
    config = composed_file(path)
    block, instance = _only_server(config, name, path)
    _check_fixture(path.parents[1], block.get("entrypoint"), path)
    agent = _only_agent(config, instance, path)
    environment = _only_environment_server(config, raw_config(path), agent, path)
    return ReusedVerifier(
        name,
        relative.as_posix(),
        instance,
        agent,
        environment[0] if environment else None,
        environment[1] if environment else None,
        tuple(environment_server_agent_refs(environment[2])) if environment else (),
        frozenset(map(str, config)),
        bool(block.get("datasets")),
    )


def _only_server(config: Mapping[str, Any], name: str, path: Path) -> tuple[dict[str, Any], str]:
    servers = list(implementation_blocks(config, RESOURCES_SERVERS))
    if len(servers) != 1 or servers[0][1] != name:
        found = ", ".join(f"{instance} ({kind})" for instance, kind, _ in servers) or "none"
        raise ScaffoldError(f"{path} must define one resources server of the kind {name}; it defines: {found}.")
    if any(True for _ in implementation_blocks(config, RESPONSES_API_MODELS)):
        raise ScaffoldError(f"{path} defines a model server, so its verifier can't be shared as it is.")
    instance, _, block = servers[0]
    if not block.get("entrypoint"):
        raise ScaffoldError(f"{path} gives `{instance}` no entrypoint.")
    return block, instance


def _check_fixture(folder: Path, entrypoint: Any, path: Path) -> None:
    app = folder / str(entrypoint)
    try:
        tree = ast.parse(app.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ScaffoldError(f"{app}, the entrypoint in {path}, can't be read: {error}.") from error
    if not any(map(_gives_fixture, tree.body)):
        raise ScaffoldError(
            f"{app} has no {_FIXTURE}, so nothing shows what its verifier does. "
            f"Reuse another ({_with_fixture()}), or write it and its cases: docs/verifiers.md, `server_fixture`."
        )


def _with_fixture() -> str:
    """The resources servers that say what their verifiers do, as told by their text."""
    folders = {folder.name: folder for tree in reversed(trees(RESOURCES_SERVERS)) for folder in sorted(tree.iterdir())}
    names = [name for name, folder in folders.items() if _names_fixture(folder / "app.py")]
    return ", ".join(sorted(names)) or "there is none yet"


def _names_fixture(app: Path) -> bool:
    try:
        return f"\n{_FIXTURE}" in app.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _gives_fixture(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any((alias.asname or alias.name) == _FIXTURE for alias in node.names)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, "value", None)
    is_fixture = isinstance(value, ast.Call) and _called(value.func) in _FIXTURE_MAKERS
    return is_fixture and any(isinstance(target, ast.Name) and target.id == _FIXTURE for target in targets)


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _only_agent(config: Mapping[str, Any], resources: str, path: Path) -> str | None:
    agents = list(implementation_blocks(config, RESPONSES_API_AGENTS))
    if not agents:
        return None
    name, kind, block = agents[0]
    if len(agents) > 1 or kind != SIMPLE_AGENT or reference_name(block, "resources_server") != resources:
        raise ScaffoldError(f"{path} must have at most one agent, a {SIMPLE_AGENT} bound to `{resources}`.")
    return name


def _only_environment_server(
    config: Mapping[str, Any], raw: Mapping[str, Any], agent: str | None, path: Path
) -> tuple[str, str, dict[str, Any]] | None:
    servers = list(implementation_blocks(config, ENVIRONMENT_SERVERS))
    if not servers:
        return None
    name, kind, block = servers[0]
    if len(servers) > 1 or agent is None or agent not in environment_server_agent_names(block):
        raise ScaffoldError(f"{path} must have at most one environment server, in front of its agent.")
    entry = raw.get(name)
    if isinstance(entry, Mapping) and {INHERIT_FROM_KEY_NAME, COPY_KEY_NAME} & set(entry):
        raise ScaffoldError(f"{path}: `{name}` is made from another instance, so nothing can be made from it.")
    routes = config.get(ENVIRONMENT_SERVER_ROUTES_KEY_NAME)
    if isinstance(routes, Mapping) and name in routes.values():
        raise ScaffoldError(f"{path}: rows are routed to `{name}` by {ENVIRONMENT_SERVER_ROUTES_KEY_NAME}.")
    return name, kind, block
