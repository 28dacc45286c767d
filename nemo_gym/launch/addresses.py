"""Where the servers of a run are to listen, and telling the config where they do."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nemo_gym.config import ports
from nemo_gym.config.keys import DISALLOWED_PORTS_KEY_NAME, HEAD_SERVER_KEY_NAME
from nemo_gym.config.placement import put_ports
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.launch.sockets import Endpoint

if TYPE_CHECKING:
    from omegaconf import DictConfig

_HEAD_REMEDY = f" with +{HEAD_SERVER_KEY_NAME}.port=<port>; a run of your own is ended by `gym env stop`"


def endpoints_of(
    plans: Sequence[ServerPlan], settings: LaunchSettings, *, head_may_move: bool = False
) -> list[Endpoint]:
    """The head server and every planned one. The head server's port may be another only where nobody set it."""
    may_move = head_may_move and settings.head_port in ports.chosen_ports
    head = Endpoint(HEAD_SERVER_KEY_NAME, settings.head_host, settings.head_port, may_move, _HEAD_REMEDY)
    return [head, *(endpoint_of(plan) for plan in plans)]


def record_ports(config: DictConfig, plans: Sequence[ServerPlan], sockets: Mapping[str, socket.socket]) -> None:
    """Put the ports that were really bound into the config, for servers and for other names of theirs."""
    from omegaconf import flag_override

    head_port = sockets[HEAD_SERVER_KEY_NAME].getsockname()[1]
    moved = {
        plan.name: sockets[plan.name].getsockname()[1]
        for plan in plans
        if sockets[plan.name].getsockname()[1] != plan.instance.port
    }
    with flag_override(config, ["readonly", "struct"], False):
        if (head := config.get(HEAD_SERVER_KEY_NAME)) is not None and head.get("port") != head_port:
            head["port"] = head_port
    if not moved:
        return
    put_ports(config, moved)
    with flag_override(config, ["readonly", "struct"], False):
        if config.get(DISALLOWED_PORTS_KEY_NAME) is not None:
            config[DISALLOWED_PORTS_KEY_NAME].extend(list(moved.values()))


def endpoint_of(plan: ServerPlan) -> Endpoint:
    """Where the config has one server listen."""
    instance = plan.instance
    path = f"{instance.name}.{instance.server_type}.{instance.implementation}.port"
    may_move = instance.port in ports.chosen_ports
    return Endpoint(instance.name, instance.host, instance.port, may_move, f" with ++{path}=<port>")
