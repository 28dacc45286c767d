"""The program of a process that holds copies of several servers (`placement: shared`)."""

from __future__ import annotations

import os
import socket
import sys
from typing import cast

from nemo_gym.config.handover import INSTANCE_ENV, LISTEN_FD_ENV
from nemo_gym.config.placement import Shard, ShardMember, placed_shards, put_ports
from nemo_gym.config.secrets import Redactor
from nemo_gym.errors import GymError
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.serve import redaction
from nemo_gym.serve.garbage import relax_collection
from nemo_gym.serve.shard import Resident, load_class, prefix_by_member, serve_all, speaking_for
from nemo_gym.serve.sockets import take_ready_descriptor
from nemo_gym.server_utils import SimpleServer
from nemo_gym.telemetry import shutdown_telemetry

__all__ = ["main"]


def main() -> None:
    """Serve what the environment says until told to stop."""
    prefix_by_member()
    try:
        _serve(Shard.from_environment())
    except GymError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def _serve(shard: Shard) -> None:
    config = get_global_config_dict()
    redaction.install(Redactor.from_config(config))
    put_ports(config, placed_shards(config)[shard.index])
    sockets = [socket.socket(fileno=int(fd)) for fd in os.environ.pop(LISTEN_FD_ENV).split(",")]
    ready = take_ready_descriptor()
    residents = [_resident(shard, member, sock) for member, sock in zip(shard.members, sockets, strict=True)]
    relax_collection()
    try:
        serve_all(residents, ready)
    finally:
        shutdown_telemetry()


def _resident(shard: Shard, member: ShardMember, sock: socket.socket) -> Resident:
    os.set_inheritable(sock.fileno(), False)
    os.environ[INSTANCE_ENV] = member.name
    with speaking_for(member.name):
        server = cast(type[SimpleServer], load_class(member))
        is_main = shard.index == 0 and member is shard.members[0]
        return server._resident(sock, shards=shard.count, is_main=is_main)


if __name__ == "__main__":
    main()
