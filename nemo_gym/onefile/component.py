"""An environment's file as a component: the folder that serves it, in a cache or for good."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.roots import CACHE_DIR
from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.example_rows import ENVIRONMENT_FILE, EXAMPLE_ROWS
from nemo_gym.onefile.loading import load_environment
from nemo_gym.onefile.writing import audit, readme, server, task_data, tests
from nemo_gym.package_info import __version__

REQUIREMENTS = "-e nemo-gym[dev] @ ../../\n"

Files = dict[Path, bytes]


@dataclass(frozen=True)
class Component:
    """`root` is a folder to find components in; `config` the config of this one, `name` its folder's name."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.root / RESOURCES_SERVERS / self.name

    @property
    def config(self) -> Path:
        return self.folder / "configs" / f"{self.name}.yaml"


def cached_component(path: Path, cache: Path | None = None) -> Component:
    """The component of an environment's file as it is now. Raises EnvironmentFileError for a file that isn't one.

    It is written once for each content of the file, so that runs that are going on keep theirs.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - symlinks kept
    environment = load_environment(path)
    files = served_files(environment, path)
    root = (cache or CACHE_DIR / "one_file") / _digest(files)
    component = Component(root, environment.name)
    if not component.config.exists():
        _write_whole(root, component, files)
    return component


def served_files(environment: Environment, path: Path) -> Files:
    """What serves an environment from its file, relative to the component's folder."""
    config = config_of(environment, rows_at="data/example.jsonl", source_file=path)
    return {
        **copied(path),
        Path("app.py"): server(environment.name, imported="").encode(),
        Path(f"configs/{environment.name}.yaml"): _yaml(config),
        Path("requirements.txt"): REQUIREMENTS.encode(),
        **_rows(environment),
        Path("audit.py"): audit("").encode(),
    }


def grown_files(environment: Environment, path: Path, requirements: str = REQUIREMENTS) -> Files:
    """The same as a component of its own: the file is `environment.py`, unchanged, and everything else is around it."""
    name = environment.name
    variable = "env" if environment.variable == "env" else f"{environment.variable} as env"
    imported = f"from {RESOURCES_SERVERS}.{name}.environment import {variable}\n"
    return {
        **copied(path),
        **_tasks_beside(environment),
        Path("app.py"): server(name, imported=imported).encode(),
        Path("task_data.py"): task_data(environment.tasks).encode(),
        Path(f"configs/{name}.yaml"): _yaml(config_of(environment, rows_at="data/example.jsonl")),
        Path("requirements.txt"): requirements.encode(),
        Path("README.md"): readme(environment).encode(),
        Path("tests/__init__.py"): b"",
        Path("tests/test_app.py"): tests(imported, _tests_in(path), has_reference=environment.has_reference).encode(),
        Path("data/.gitignore"): b"*train.jsonl\n*validation.jsonl\n*_prepare.jsonl\n*_prepare.*.jsonl\n",
        **_rows(environment),
        Path("audit.py"): audit(imported).encode(),
    }


def config_of(environment: Environment, *, rows_at: str, source_file: Path | None = None) -> dict[str, Any]:
    """The config of an environment: its resources server, the agent, and what fronts it."""
    name = environment.name
    server_name, agent = f"{name}_resources_server", f"{name}_simple_agent"
    block: dict[str, Any] = {"entrypoint": "app.py", "domain": environment.domain, "verified": False}
    block |= {"description": environment.description} if environment.description else {}
    block |= {"source_file": str(source_file)} if source_file is not None else {}
    bound: dict[str, Any] = {
        "entrypoint": "app.py",
        "resources_server": {"type": RESOURCES_SERVERS, "name": server_name},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    bound |= {"max_steps": environment.max_steps} if environment.max_steps else {}
    if environment.tasks:
        rows = f"{RESOURCES_SERVERS}/{name}/{rows_at}"
        bound["datasets"] = [{"name": "example", "type": "example", "jsonl_fpath": rows}]
    fronted = {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": agent}}
    return {
        server_name: {RESOURCES_SERVERS: {name: block}},
        agent: {"responses_api_agents": {"simple_agent": bound}},
        f"{name}_environment_server": {"environment_servers": {"legacy_agent": fronted}},
    }


def copied(path: Path) -> Files:
    """The file as `environment.py`, with the modules beside it that it imports, and those that they import."""
    found = {Path(ENVIRONMENT_FILE): path.read_bytes()}
    names, seen = list(_imports(found[Path(ENVIRONMENT_FILE)])), {path.stem}
    while names:
        name = names.pop()
        beside = path.with_name(f"{name}.py")
        if name in seen or name in sys.stdlib_module_names or not beside.is_file():
            continue
        seen.add(name)
        found[Path(beside.name)] = beside.read_bytes()
        names += _imports(found[Path(beside.name)])
    return found


def _imports(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _tests_in(path: Path) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_bytes())
    return [node.name for node in tree.body if isinstance(node, functions) and node.name.startswith("test_")]


def _tasks_beside(environment: Environment) -> Files:
    """The file that the tasks are read from."""
    path = environment.tasks_file
    if path is None or path.is_absolute() or not environment.tasks:
        return {}
    return {path: (Path(environment.file).parent / path).read_bytes()}


def _rows(environment: Environment) -> Files:
    text = rows_text(environment)
    return {EXAMPLE_ROWS: text.encode()} if text else {}


def rows_text(environment: Environment) -> str:
    """The example rows as a file has them."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in environment.rows())


def _yaml(config: Mapping[str, Any]) -> bytes:
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True).encode()


def _digest(files: Files) -> str:
    digest = hashlib.sha256(__version__.encode())
    for path, content in sorted(files.items()):
        digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _write_whole(root: Path, component: Component, files: Files) -> None:
    """Write a component so that nobody sees half of it."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=root.parent))
        for relative, content in files.items():
            target = unfinished / component.folder.relative_to(root) / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        try:
            unfinished.rename(root)
        except OSError:  # somebody else was faster, with the same files
            shutil.rmtree(unfinished)
            if not component.config.exists():
                raise
    except OSError as error:
        raise EnvironmentFileError(f"{root} can't be written ({error.strerror}): make room there.") from error
