"""Where servers are placed: each in a process of its own, or copies of several together in a number of shards."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import SHARD_ENV
from nemo_gym.config.keys import PLACED_SHARDS_KEY_NAME, PLACEMENT_KEY_NAME, PLACEMENT_SHARDS_KEY_NAME

if TYPE_CHECKING:
    from omegaconf import DictConfig

Ports = dict[str, int]
"""Where the servers of one shard listen, by instance name."""


@dataclass(frozen=True)
class Placement:
    """`process`: a process for every server. `shared`: `shards` processes with a copy each of those that allow it."""

    mode: Literal["process", "shared"] = "process"
    shards: int = 1

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Placement:
        """Raises ConfigError for a placement there isn't, or a number of shards that is none."""
        mode = config.get(PLACEMENT_KEY_NAME) or "process"
        if mode not in ("process", "shared"):
            raise ConfigError(f"{PLACEMENT_KEY_NAME} is {mode!r}: it must be process or shared.")
        shards = config.get(PLACEMENT_SHARDS_KEY_NAME)
        if shards is None:
            shards = cores()
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
            raise ConfigError(
                f"{PLACEMENT_SHARDS_KEY_NAME} is {shards!r}: it must be a number of processes, as in "
                f"+{PLACEMENT_SHARDS_KEY_NAME}=4."
            )
        return cls(cast(Literal["process", "shared"], mode), shards if mode == "shared" else 1)


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
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def put_ports(config: DictConfig, ports: Mapping[str, int]) -> None:
    """Have the named instances, and what is another name for them, listen on other ports."""
    from omegaconf import flag_override

    from nemo_gym.config.instances import server_instances

    with flag_override(config, ["readonly", "struct"], False):
        for instance in server_instances(config):
            port = ports.get(instance.alias_of or instance.name)
            if port is not None:
                config[instance.name][instance.server_type][instance.implementation]["port"] = port
