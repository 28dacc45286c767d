"""Starting one planned server: forked or exec'd, with its environment, its log and its descriptors."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from nemo_gym.launch.environment import Handover, changes, server_environment, why_no_fork
from nemo_gym.launch.logs import open_log
from nemo_gym.launch.marker import MARKER_PREFIX
from nemo_gym.launch.messages import Role, SpawnRequest
from nemo_gym.launch.plan import ServerPlan, Start, how_to_start
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.spawner import Spawner
from nemo_gym.launch.venvs import Venv


@dataclass(frozen=True)
class StartedServer:
    """`ready` is the pipe on which the server says that it serves; None when it has nothing to serve on."""

    process: ServerProcess
    start: Start
    ready: int | None


def start_server(
    plan: ServerPlan,
    venv: Venv,
    handover: Handover,
    spawner: Spawner,
    *,
    log: Path,
    bound: socket.socket | None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> StartedServer:
    """Start it on a bound socket, or on none when it only has to be constructed. The socket stays the caller's.

    `variables` are added to its environment.
    """
    wanted = {**server_environment(plan.name, plan.directory, venv, handover), **variables}
    changed, unset = changes(spawner.environment, wanted, MARKER_PREFIX)
    start = how_to_start(plan, venv, spawner.facts(), why_no_fork(changed, unset))
    ready, ready_end = os.pipe() if bound is not None else (None, None)
    passed: dict[Role, int] = {"log": open_log(log)}
    if bound is not None and ready_end is not None:
        passed |= {"listen": bound.fileno(), "ready": ready_end}
    request = SpawnRequest(
        name=plan.name,
        mode=start.mode,
        python=str(venv.python),
        prefix=str(venv.path),
        site_packages=str(venv.site_packages),
        entrypoint=str(plan.entrypoint),
        directory=str(plan.directory),
        environment=changed,
        unset=unset,
        roles=list(passed),
    )
    try:
        process = spawner.spawn(request, list(passed.values()))
    except BaseException:
        if ready is not None:
            os.close(ready)
        raise
    finally:
        os.close(passed["log"])
        if ready_end is not None:
            os.close(ready_end)
    return StartedServer(process, start, ready)
