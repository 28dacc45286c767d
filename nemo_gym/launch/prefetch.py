"""Building every venv of a config ahead of time, as image builds do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

from nemo_gym.config.errors import NoServerInstancesError
from nemo_gym.config.instances import server_instances
from nemo_gym.launch.plan import ensure_venvs, plan_servers
from nemo_gym.launch.venvs import Venv, VenvSettings

if TYPE_CHECKING:
    from omegaconf import DictConfig


def prefetch(config: DictConfig, *, output: Callable[[str], None] = print) -> None:
    """Build the venvs of all servers of a config, one after the other, with their bytecode; start nothing."""
    plans = plan_servers(server_instances(config))
    if not plans:
        raise NoServerInstancesError("The config defines no server, so there is nothing to prefetch.")
    venvs = ensure_venvs(plans, VenvSettings.from_config(config), output, at_once=1)
    for directory, venv in venvs.items():
        if venv.kind == "ours":
            _compile(venv)
        output(f"({'/'.join(directory.parts[-2:])}) {venv.path} is ready.")


def _compile(venv: Venv) -> None:
    subprocess.run(
        [str(venv.python), "-m", "compileall", "-q", "-j", "0", str(venv.site_packages)],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
