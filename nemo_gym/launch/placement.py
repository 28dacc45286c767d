"""Which servers of a run share processes, and the processes they share."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_gym.config.handover import SHARD_ENV
from nemo_gym.config.keys import ENVIRONMENT_SERVERS, RESPONSES_API_AGENTS, TOKEN_ID_CAPTURE_KEY_NAME
from nemo_gym.config.placement import PER_PROCESS_LIMIT, Placement, Ports, Shard, ShardMember
from nemo_gym.config.roots import PARENT_DIR, ROOT_DIR
from nemo_gym.launch import ray_cluster
from nemo_gym.launch.environment import Handover, changes, server_environment, why_no_fork
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.logs import open_log
from nemo_gym.launch.marker import MARKER_PREFIX
from nemo_gym.launch.messages import MOST_DESCRIPTORS, Role, SpawnRequest
from nemo_gym.launch.plan import ServerPlan, Start, how_to_start
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.sockets import Endpoint, PortRange, close_all, listen_all
from nemo_gym.launch.sources import shared_class
from nemo_gym.launch.spawner import Spawner
from nemo_gym.launch.starting import StartedServer
from nemo_gym.launch.venvs import Venv

if TYPE_CHECKING:
    from omegaconf import DictConfig

PROGRAM = ROOT_DIR / "shared_placement.py"
MOST_MEMBERS = MOST_DESCRIPTORS - 2
_WORKERS_ENV = "NEMO_GYM_FASTAPI_NUM_WORKERS"


@dataclass(frozen=True)
class SharedSet:
    """The servers that share processes and the number of those; `listeners` has the sockets of each shard in turn."""

    plans: tuple[ServerPlan, ...]
    members: tuple[ShardMember, ...]
    listeners: list[dict[str, socket.socket]]

    @property
    def names(self) -> list[str]:
        return [plan.name for plan in self.plans]

    @property
    def ports(self) -> list[Ports]:
        return [{name: bound.getsockname()[1] for name, bound in shard.items()} for shard in self.listeners]

    @property
    def summary(self) -> str:
        count = len(self.listeners)
        processes = "one process" if count == 1 else f"{count} processes"
        return f"{listed(self.names)} {'share' if len(self.names) > 1 else 'has'} {processes}"

    def title(self, index: int) -> str:
        """A shard, as a sentence begins with it."""
        return f"The process of {listed(self.names)} (shard {index + 1} of {len(self.listeners)}"


def logs_by_server(logs: Mapping[str, Path], shared: SharedSet | None) -> dict[str, Path]:
    """The log of every server by `logs` of processes: of one with several copies that of the first; and the shards'."""
    return {**logs, **{name: logs[shard_name(0)] for name in (shared.names if shared is not None else ())}}


def shard_name(index: int) -> str:
    """The name of a shard's process and log."""
    return f"shard-{index + 1}"


def shared_members(
    plans: Sequence[ServerPlan], venvs: Mapping[Path, Venv], facts: PreloadFacts
) -> list[tuple[ServerPlan, ShardMember]]:
    """Those that may share a process; none when no rollout is sent to any of them, since shards would be idle then."""
    found = [(plan, _member(plan, venvs[plan.directory], facts)) for plan in plans]
    chosen = [(plan, member) for plan, member in found if isinstance(member, ShardMember)]
    sent_to = {RESPONSES_API_AGENTS, ENVIRONMENT_SERVERS}
    is_useful = any(plan.instance.server_type in sent_to for plan, _ in chosen)
    return chosen[:MOST_MEMBERS] if is_useful else []


def why_not_all(plans: Sequence[ServerPlan], venvs: Mapping[Path, Venv], facts: PreloadFacts) -> str | None:
    """What keeps the first of them that may not share a process from it; None when all of them may."""
    if len(plans) > MOST_MEMBERS:
        return f"one process takes no more than {MOST_MEMBERS} of them"
    found = ((plan, _member(plan, venvs[plan.directory], facts)) for plan in plans)
    return next((f"{plan.name} {why}" for plan, why in found if isinstance(why, str)), None)


def why_not_by_itself(
    config: DictConfig, plans: Sequence[ServerPlan], venvs: Mapping[Path, Venv], facts: PreloadFacts
) -> str | None:
    """What about a run speaks against shards that nobody asked for; one server that may not share is enough."""
    if ray_cluster.is_wanted(plans, config):
        return "the run uses Ray"
    capture = config.get(TOKEN_ID_CAPTURE_KEY_NAME)
    if isinstance(capture, Mapping) and capture.get("enabled"):
        return "token ids are captured, and the book of them is one process's"
    return why_not_all(plans, venvs, facts)


def within_limits(placement: Placement, plans: Sequence[ServerPlan]) -> Placement:
    """Not more shards than the strictest limit of a server allows: each gets its share of it, and at least one."""
    lowest = _lowest_limit(plans)
    if lowest is None or not placement.is_counted:
        return placement
    return replace(placement, shards=min(lowest, placement.shards))


def _lowest_limit(plans: Sequence[ServerPlan]) -> int | None:
    limits = (
        value
        for plan in plans
        for key, value in plan.instance.block.items()
        if PER_PROCESS_LIMIT.match(key) and isinstance(value, int) and not isinstance(value, bool) and value > 0
    )
    return min(limits, default=None)


def bind_shards(
    chosen: Sequence[tuple[ServerPlan, ShardMember]],
    placement: Placement,
    first: Mapping[str, socket.socket],
    ports: PortRange,
) -> SharedSet:
    """The set with sockets for all its shards; those of shard 0 are `first`, the addresses the config has."""
    plans = tuple(plan for plan, _ in chosen)
    listeners = [{plan.name: first[plan.name] for plan in plans}]
    wanted = [Endpoint(plan.name, plan.instance.host, 0, may_move=True) for plan in plans]
    try:
        for _ in range(1, placement.shards):
            listeners.append(listen_all(wanted, ports))
    except BaseException:
        for shard in listeners[1:]:
            close_all(shard.values())
        raise
    return SharedSet(plans, tuple(member for _, member in chosen), listeners)


def start_shard(
    shared: SharedSet, index: int, handover: Handover, spawner: Spawner, log: Path, variables: Mapping[str, str]
) -> StartedServer:
    """Fork the process of one shard. The sockets stay the caller's; `variables` are added to its environment."""
    venv = base_venv()
    shard = Shard(index, len(shared.listeners), shared.members)
    wanted = server_environment(shared.plans[0].name, PARENT_DIR, venv, handover)
    wanted |= {SHARD_ENV: shard.as_text(), _WORKERS_ENV: str(shard.count), **variables}
    changed, unset = changes(spawner.environment, wanted, MARKER_PREFIX)
    ready, ready_end = os.pipe()
    log_end = open_log(log)
    listeners = [bound.fileno() for bound in shared.listeners[index].values()]
    roles: list[Role] = ["log", "ready", *(["listen"] * len(listeners))]  # type: ignore[list-item]
    request = SpawnRequest(
        name=shard_name(index),
        mode="fork",
        python=str(venv.python),
        prefix=str(venv.path),
        site_packages=str(venv.site_packages),
        entrypoint=str(PROGRAM),
        directory=str(PARENT_DIR),
        environment=changed,
        unset=unset,
        roles=roles,
    )
    try:
        process = spawner.spawn(request, [log_end, ready_end, *listeners])
        return StartedServer(process, Start("fork"), ready)
    except BaseException:
        os.close(ready)
        raise
    finally:
        os.close(log_end)
        os.close(ready_end)


def why_no_shards(spawner: Spawner, handover: Handover) -> str | None:
    """What about this machine or environment keeps servers from being forked."""
    facts = spawner.facts()
    wanted = server_environment("", PARENT_DIR, base_venv(), handover)
    return facts.problem or why_no_fork(*changes(spawner.environment, wanted, MARKER_PREFIX))


def base_venv() -> Venv:
    """The installation that runs us, as a venv."""
    base = this_installation()
    return Venv(base.prefix, "base", base.executable, base.site_directories[0])


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _member(plan: ServerPlan, venv: Venv, facts: PreloadFacts) -> ShardMember | str:
    """What a shard is told of a server that may be in one; else why it may not."""
    start = how_to_start(plan, venv, facts, None)
    if start.mode != "fork":
        return f"keeps its own ({start.reason})"
    if venv.provides:
        return f"keeps its own (its venv has its own {min(venv.provides)})"
    if (workers := plan.instance.block.get("num_workers") or 1) > 1:
        return f"asks for {workers} workers"
    served = shared_class(plan.directory, plan.entrypoint)
    if served is None:
        return f"({plan.component}) doesn't declare that it may share one"
    stem = plan.entrypoint.relative_to(plan.directory).with_suffix("").parts
    module = ".".join([plan.instance.server_type, plan.instance.implementation, *stem])
    return ShardMember(plan.name, str(plan.entrypoint), module, served)
