"""From instances to processes: which folder, which venv, forked or exec'd, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import ServerInstance
from nemo_gym.config.roots import server_directory
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.sources import needs_ray
from nemo_gym.launch.uv import end_running
from nemo_gym.launch.venvs import Venv, VenvSettings, ensure_venv

BUILDS_AT_ONCE = 4


@dataclass(frozen=True)
class ServerPlan:
    """One server to start; `num_workers` is its own business, since it forks them itself."""

    instance: ServerInstance
    directory: Path
    entrypoint: Path
    needs_ray: bool

    @property
    def name(self) -> str:
        return self.instance.name

    @property
    def component(self) -> str:
        return f"{self.instance.server_type}/{self.instance.implementation}"


@dataclass(frozen=True)
class Start:
    """How a planned server is started, and the reason when it isn't a fork."""

    mode: Literal["fork", "exec"]
    reason: str = ""


def plan_servers(instances: Iterable[ServerInstance]) -> list[ServerPlan]:
    """What to start for the given instances; aliases are other servers' names and start nothing.

    Raises ConfigError for an entrypoint outside its component's folder, or a component that doesn't exist.
    """
    return [_plan(instance) for instance in instances if not instance.is_alias]


def ensure_venvs(
    plans: Sequence[ServerPlan], settings: VenvSettings, report: Callable[[str], None], *, at_once: int = BUILDS_AT_ONCE
) -> dict[Path, Venv]:
    """The venv of every component in the plans, by component folder; each folder is looked after once."""
    entrypoints: dict[Path, list[str]] = {}
    for plan in plans:
        entrypoints.setdefault(plan.directory, []).append(plan.instance.entrypoint)

    def ensure(directory: Path) -> Venv:
        return ensure_venv(directory, settings, entrypoints=entrypoints[directory], report=report)

    with ThreadPoolExecutor(max(1, min(at_once, len(entrypoints))), thread_name_prefix="gym-venv") as pool:
        try:
            return dict(zip(entrypoints, pool.map(ensure, entrypoints), strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_running()
            raise


def how_to_start(plan: ServerPlan, venv: Venv, facts: PreloadFacts, obstacle: str | None) -> Start:
    """Fork unless something forbids it. `obstacle` is one that the environment of this server poses."""
    if facts.problem is not None:
        return Start("exec", facts.problem)
    if plan.needs_ray:
        return Start("exec", "it uses Ray")
    if venv.kind == "foreign":
        return Start("exec", "its venv was built elsewhere")
    if clash := sorted(venv.provides & (facts.loaded | facts.missed)):
        return Start("exec", f"its venv has its own {clash[0]}")
    return Start("exec", obstacle) if obstacle else Start("fork")


def _plan(instance: ServerInstance) -> ServerPlan:
    directory = server_directory(instance.server_type, instance.implementation)
    if Path(instance.entrypoint).is_absolute():
        raise ConfigError(
            f"{instance.name}.entrypoint is {instance.entrypoint}: it must be a path within {directory}, as app.py is."
        )
    entrypoint = directory / instance.entrypoint
    if not entrypoint.is_file():
        raise ConfigError(f"{instance.name}.entrypoint names {entrypoint}, which isn't there: correct the path.")
    return ServerPlan(instance, directory, entrypoint, needs_ray(directory))
