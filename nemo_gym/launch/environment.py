"""The environment of a server process, and whether a fork could live in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.handover import CONFIG_DICT_ENV, CONFIG_FILE_ENV, INSTANCE_ENV, RUN_DIR_ENV
from nemo_gym.launch.import_probe import component_path
from nemo_gym.launch.venvs import Venv

_READ_AT_START = ("PYTHON", "LD_")
_READ_ONCE = ("SSL_CERT_FILE", "SSL_CERT_DIR", "TZ")
_HARMLESS = ("PYTHONPATH", "PYTHONBREAKPOINT")
"""The first a fork is given by hand, the second is looked up whenever it is needed."""
_WATCHERS = (
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
    "PYTHONDEVMODE",
    "PYTHONTRACEMALLOC",
)


@dataclass(frozen=True)
class Handover:
    """Where a run's servers find its config and folder, and what else all of them get."""

    config_file: Path
    run_directory: Path
    variables: Mapping[str, str]


def server_environment(instance: str, directory: Path, venv: Venv, handover: Handover) -> dict[str, str]:
    """The whole environment a server gets, on top of ours."""
    inherited = {name: value for name, value in os.environ.items() if name != CONFIG_DICT_ENV}
    activated = {} if venv.kind == "base" and sys.prefix == sys.base_prefix else {"VIRTUAL_ENV": str(venv.path)}
    return {
        **inherited,
        **handover.variables,
        **activated,
        "PATH": os.pathsep.join([str(venv.binaries), *_other_paths(venv)]),
        "PYTHONPATH": component_path(directory, inherited.get("PYTHONPATH")),
        CONFIG_FILE_ENV: str(handover.config_file),
        INSTANCE_ENV: instance,
        RUN_DIR_ENV: str(handover.run_directory),
    }


def changes(
    current: Mapping[str, str], wanted: Mapping[str, str], marker_prefix: str
) -> tuple[dict[str, str], list[str]]:
    """What has to be set and unset to get from one environment to the other; the run's marker stays."""
    changed = {name: value for name, value in wanted.items() if current.get(name) != value}
    unset = [name for name in current if name not in wanted and not name.startswith(marker_prefix)]
    return changed, unset


def why_no_fork(changed: Mapping[str, str], unset: list[str]) -> str | None:
    """A reason that lies in the environment: what is read only when an interpreter starts, or watches it."""
    if any(name in os.environ for name in _WATCHERS) or sys.gettrace() is not None:
        return "something traces or profiles"
    for name in (*changed, *unset):
        if name not in _HARMLESS and (name.startswith(_READ_AT_START) or name in _READ_ONCE):
            return f"{name} differs from the fork server's"
    return None


def _other_paths(venv: Venv) -> list[str]:
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [entry for entry in entries if entry != str(venv.binaries)]
