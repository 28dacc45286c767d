"""`gym env test --all`: the tests and example data of every server, each in its own venv."""

import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.cli.command_configs import TestAllConfig
from nemo_gym.cli.component_venv import run_tests
from nemo_gym.cli.example_data import example_data_problems
from nemo_gym.config.catalog import trees
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import ENVIRONMENT_SERVERS, RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS
from nemo_gym.config.roots import is_server_directory
from nemo_gym.errors import GymError
from nemo_gym.launch.venvs import VenvSettings, ensure_venv, venv_path

_TYPES = (RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS, ENVIRONMENT_SERVERS)
_OUTCOMES = {0: "passed", 1: "failed", 2: "failed", 5: "without tests"}
_BAD = ("failed", "without tests", "ended otherwise", "with wrong example data")


@dataclass(frozen=True)
class Tested:
    """How the tests of a server ended. `seconds` include building its venv."""

    entrypoint: str
    outcome: str
    seconds: float
    data_problems: Sequence[str] = ()


def test_all(wanted: TestAllConfig, config: Mapping[str, Any]) -> int:
    """Test every server, or the shard that is wanted, and print what came out. Returns the exit code.

    Raises ConfigError for a shard there isn't.
    """
    if wanted.shard_index >= wanted.num_shards:
        raise ConfigError(f"shard_index {wanted.shard_index} is none of {wanted.num_shards} shards: count from 0.")
    found = server_folders()
    described = {entrypoint: folder for entrypoint, folder in found.items() if (folder / "README.md").is_file()}
    mine = dict(list(described.items())[wanted.shard_index :: wanted.num_shards])
    if wanted.setup_only:
        return _build(mine, config)
    results = [_tested(entrypoint, folder, wanted, config) for entrypoint, folder in mine.items()]
    print("\n".join(_report(results)))
    is_short = wanted.fail_on_total_and_test_mismatch and len(found) != len(described)
    if is_short:
        print(f"Error: without a README.md, so not tested: {_listed(found.keys() - described.keys())}", file=sys.stderr)
    return int(is_short or any(result.outcome in _BAD or result.data_problems for result in results))


def server_folders() -> dict[str, Path]:
    """Every server's folder by entrypoint (`<type>/<name>`), sorted; the better root's, where several have it."""
    folders: dict[str, Path] = {}
    for server_type in _TYPES:
        for tree in trees(server_type):
            for folder in tree.iterdir():
                if folder.is_dir() and "pycache" not in folder.name and is_server_directory(folder):
                    folders.setdefault(f"{server_type}/{folder.name}", folder)
    return dict(sorted(folders.items()))


def _tested(entrypoint: str, folder: Path, wanted: TestAllConfig, config: Mapping[str, Any]) -> Tested:
    print(f"--- {entrypoint}", flush=True)
    started = time.perf_counter()
    try:
        outcome = _OUTCOMES.get(run_tests(entrypoint, config), "ended otherwise")
    except GymError as error:
        print(f"Error: {error}", file=sys.stderr)
        outcome = "failed"
    problems = example_data_problems(folder) if entrypoint.startswith(RESOURCES_SERVERS) else []
    for problem in problems:
        print(f"Error: {problem}", file=sys.stderr)
    seconds = time.perf_counter() - started
    if wanted.delete_venvs_after_each_test:
        shutil.rmtree(venv_path(folder, VenvSettings.from_config(config).root), ignore_errors=True)
    return Tested(entrypoint, outcome, seconds, problems)


def _build(folders: Mapping[str, Path], config: Mapping[str, Any]) -> int:
    """Build the venvs only; 1 when one can't be built."""
    failed = []
    for entrypoint, folder in folders.items():
        try:
            ensure_venv(folder, VenvSettings.from_config(config), for_tests=True)
        except GymError as error:
            print(f"Error: {entrypoint}: {error}", file=sys.stderr)
            failed.append(entrypoint)
    print(f"{len(folders) - len(failed)} / {len(folders)} venvs are ready.")
    return int(bool(failed))


def _report(results: Sequence[Tested]) -> list[str]:
    slowest = sorted(results, key=lambda result: -result.seconds)
    lines = ["", "Seconds", *(f"{result.seconds:8.1f}  {result.entrypoint}" for result in slowest), ""]
    for outcome in ("passed", *_BAD):
        is_data = outcome == _BAD[-1]
        named = [each.entrypoint for each in results if (each.data_problems if is_data else each.outcome == outcome)]
        lines.append(_share(outcome, len(named), len(results)))
        lines += [f"  {entrypoint}" for entrypoint in named]
    again = [each.entrypoint for each in results if each.outcome in _BAD]
    lines += [f"To run these tests again: gym env test +entrypoint={entrypoint}" for entrypoint in again]
    return lines


def _share(outcome: str, count: int, total: int) -> str:
    percent = 100 * count / total if total else 0.0
    return f"{outcome}: {count} / {total} ({percent:.0f}%)"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
