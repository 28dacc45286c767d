"""Where servers are placed: a process each, copies of several together in shards, or on the nodes of a Ray cluster."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import SHARD_ENV
from nemo_gym.config.keys import PLACED_SHARDS_KEY_NAME, PLACEMENT_KEY_NAME, PLACEMENT_SHARDS_KEY_NAME

if TYPE_CHECKING:
    from omegaconf import DictConfig

PER_PROCESS_LIMIT = re.compile(r"^(num|max)_concurren")
"""Keys of a server's block that bound what one process does at a time; shards divide them."""
_IN_FLIGHT_KEY_NAME = "num_samples_in_parallel"
_MOVING = "moves"
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")

Ports = dict[str, int]
"""Where the servers of one shard listen, by instance name."""


Mode: TypeAlias = Literal["process", "shared", "ray", "auto"]


@dataclass(frozen=True)
class Placement:
    """`process`: a process for every server. `shared`: `shards` processes with a copy each of those that allow it.

    `ray`: an actor for every server, on the nodes of a Ray cluster. `auto`: shared where every server of the run allows
    it, else process. `is_counted` says that nobody set `shards`.
    """

    mode: Mode = "process"
    shards: int = 1
    is_counted: bool = field(default=False, compare=False)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], default: Mode = "process") -> Placement:
        """Raises ConfigError for a placement there isn't, or a number of shards that is none.

        Where nobody says how many shards: one for each core that may be used, but not more than rollouts in flight.
        """
        mode = config.get(PLACEMENT_KEY_NAME) or default
        if mode not in ("process", "shared", "ray", "auto"):
            raise ConfigError(f"{PLACEMENT_KEY_NAME} is {mode!r}: it must be process, shared, ray or auto.")
        shards = config.get(PLACEMENT_SHARDS_KEY_NAME)
        is_counted = shards is None
        if shards is None:
            in_flight = config.get(_IN_FLIGHT_KEY_NAME)
            shards = cores()
            if isinstance(in_flight, int) and not isinstance(in_flight, bool) and in_flight > 0:
                shards = min(shards, in_flight)
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
            raise ConfigError(
                f"{PLACEMENT_SHARDS_KEY_NAME} is {shards!r}: it must be a number of processes, as in "
                f"+{PLACEMENT_SHARDS_KEY_NAME}=4."
            )
        return cls(cast(Mode, mode), 1 if mode in ("process", "ray") else shards, is_counted)


@dataclass(frozen=True)
class ShardMember:
    """One server of a shard: its instance, the file that defines it, what to import that as, and its class."""

    name: str
    file: str
    module: str
    served_class: str


@dataclass(frozen=True)
class Shard:
    """What one process of several alike is told: which of them it is, and which servers it holds."""

    index: int
    count: int
    members: tuple[ShardMember, ...]

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Shard:
        text = os.environ.pop(SHARD_ENV, None)
        if text is None:
            raise ConfigError(f"{SHARD_ENV} isn't set: this program is started by Gym, with `+placement=shared`.")
        content = json.loads(text)
        return cls(content["index"], content["count"], tuple(ShardMember(**each) for each in content["members"]))


def cores() -> int:
    """The cores this process may use: those it is bound to, or what its container is given, whichever is less."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = _container_cores(_CPU_MAX)
    return bound if given is None else min(bound, given)


def _container_cores(path: Path) -> int | None:
    """What a control group's `cpu.max` (quota and period in µs) comes to, at least 1; None without a quota."""
    try:
        quota, period = path.read_text(encoding="ascii").split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def placed_shards(config: Mapping[Any, Any]) -> list[Ports]:
    """The shards of a running set of servers; empty when each server has a process of its own."""
    placed = config.get(PLACED_SHARDS_KEY_NAME)
    shards = None if placed is None else placed.get("shards")
    return [{str(name): int(port) for name, port in shard.items()} for shard in shards or ()]


def set_placed_shards(config: DictConfig, shards: list[Ports]) -> None:
    """Have whoever gets this config know where the shards are; other names of their servers are listed too."""
    from omegaconf import flag_override

    from nemo_gym.config.instances import server_instances

    names = {each.name: each.alias_of or each.name for each in server_instances(config)}
    placed = [{name: shard[own] for name, own in names.items() if own in shard} for shard in shards]
    with flag_override(config, ["readonly", "struct"], False):
        config[PLACED_SHARDS_KEY_NAME] = {"shards": placed}


def servers_move(config: Mapping[Any, Any]) -> bool:
    """Whether a server of a running set may come to another address: actors do, when their node is lost."""
    placed = config.get(PLACED_SHARDS_KEY_NAME)
    return placed is not None and bool(placed.get(_MOVING))


def set_servers_move(config: DictConfig) -> None:
    """Have whoever gets this config know that."""
    from omegaconf import flag_override

    with flag_override(config, ["readonly", "struct"], False):
        config[PLACED_SHARDS_KEY_NAME] = {_MOVING: True}


def put_addresses(config: DictConfig, addresses: Mapping[str, tuple[str, int]]) -> None:
    """Have the named instances, and what is another name for them, listen on other hosts and ports."""
    from omegaconf import flag_override

    from nemo_gym.config.instances import server_instances

    with flag_override(config, ["readonly", "struct"], False):
        for instance in server_instances(config):
            address = addresses.get(instance.alias_of or instance.name)
            if address is not None:
                block = config[instance.name][instance.server_type][instance.implementation]
                block["host"], block["port"] = address


def put_ports(config: DictConfig, ports: Mapping[str, int]) -> None:
    """Have the named instances, and what is another name for them, listen on other ports."""
    from omegaconf import flag_override

    from nemo_gym.config.instances import server_instances

    with flag_override(config, ["readonly", "struct"], False):
        for instance in server_instances(config):
            port = ports.get(instance.alias_of or instance.name)
            if port is not None:
                config[instance.name][instance.server_type][instance.implementation]["port"] = port
