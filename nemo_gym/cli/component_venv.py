"""`gym env test` and `gym env packages`: what can be done in the venv of one server."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import SERVER_TYPES
from nemo_gym.config.roots import server_directory
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.overlay import read_stamp
from nemo_gym.launch.uv import find_uv
from nemo_gym.launch.venvs import VenvSettings, ensure_venv, venv_path

JUNIT_DIR_ENV = "GYM_CI_JUNIT_DIR"
PYTEST = ("-m", "pytest", "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
"""Components count on auto mode, also where no project around them says so; unset, the scope is warned of."""


def component_directory(entrypoint: str) -> Path:
    """The folder of `<type>/<name>`. Raises ConfigError for a name that is no server's."""
    server_type, _, name = entrypoint.partition("/")
    if server_type not in SERVER_TYPES or not name or "/" in name:
        raise ConfigError(
            f"{entrypoint!r} names no server folder: it must be <type>/<name>, as resources_servers/mcqa is, "
            f"without a flavor."
        )
    return server_directory(server_type, name)


def run_tests(entrypoint: str, config: Mapping[str, Any]) -> int:
    """Build a server's venv with what its tests need and run pytest in its folder; returns pytest's exit code."""
    directory = component_directory(entrypoint)
    venv = ensure_venv(directory, VenvSettings.from_config(config), for_tests=True)
    command = [str(venv.python), *PYTEST, *_junit_options(entrypoint)]
    python_path = os.pathsep.join(
        filter(None, [str(directory), str(directory.parents[1]), os.environ.get("PYTHONPATH")])
    )
    code = subprocess.call(command, cwd=directory, env={**os.environ, "PYTHONPATH": python_path})
    if code and not _has_tests(directory):
        print(f"{directory} has no tests. The container is made without: there, run them in a checkout.")
    elif code:
        by_hand = " ".join([str(venv.python), *PYTEST])
        print(f"To run these tests by hand: cd {directory} && PYTHONPATH={python_path} {by_hand}")
    return code


def _has_tests(directory: Path) -> bool:
    found = [path for name in ("test_*.py", "*_test.py") for path in directory.rglob(name)]
    return any(".venv" not in path.relative_to(directory).parts for path in found)


def _junit_options(entrypoint: str) -> list[str]:
    folder = os.environ.get(JUNIT_DIR_ENV)
    if not folder:
        return []
    report = Path(folder).absolute() / f"{entrypoint.replace('/', '__')}.xml"
    return [f"--junitxml={report}", f"--junit-prefix={entrypoint.replace('/', '.')}"]


def list_packages(entrypoint: str, config: Mapping[str, Any], *, style: str | None, outdated: bool) -> None:
    """Print what a server imports from: its venv's packages, and behind them those of the installation it extends.

    Raises ConfigError when the venv was not built yet, SystemExit with uv's code when uv fails.
    """
    directory = component_directory(entrypoint)
    venv = venv_path(directory, VenvSettings.from_config(config).root)
    python = venv / "bin/python"
    if not python.exists():
        raise ConfigError(f"{venv} does not exist yet: starting the server, or `gym env prefetch`, builds it.")
    stamp = read_stamp(venv)
    is_overlay = stamp is not None and not stamp.adopted
    behind = _installed(this_installation().executable, outdated) if is_overlay else {}
    packages = {**behind, **_installed(python, outdated)}
    if style is None:
        print(f"Packages of {entrypoint}\n{venv}\n{'-' * max(len(entrypoint) + 12, len(str(venv)))}")
    print(_rendered([packages[name] for name in sorted(packages)], style or "columns"))


def _installed(python: Path, outdated: bool) -> dict[str, dict[str, str]]:
    """What uv says about each package of an interpreter, by name."""
    command = [find_uv(), "pip", "list", "--python", str(python), "--format=json"]
    listed = subprocess.run([*command, *(["--outdated"] if outdated else [])], capture_output=True, check=False)
    if listed.returncode:
        sys.stderr.write(listed.stderr.decode(errors="replace"))
        raise SystemExit(listed.returncode)
    return {row["name"]: row for row in json.loads(listed.stdout or b"[]")}


def _rendered(rows: list[dict[str, str]], style: str) -> str:
    if style == "json":
        return json.dumps(rows)
    if style == "freeze":
        return "\n".join(f"{row['name']}=={row['version']}" for row in rows)
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["name", "version"]
    cells = [[key.replace("_", " ").capitalize() for key in columns]]
    cells += [[row.get(key, "") for key in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in cells)
    return "\n".join("  ".join(line).rstrip() for line in padded)
