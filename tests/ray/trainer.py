"""What a trainer runs as a Ray actor: servers and rollouts from the actor's threads."""

from __future__ import annotations

import os
import threading
from typing import Any

from tests.trainers.readers import NemoRL


class GymActor:
    """NeMo RL's environment actor, whose methods run in threads of the worker, none of which is its main one."""

    def __init__(self, settings: dict[str, Any], runs: str) -> None:
        os.environ["XDG_RUNTIME_DIR"] = runs
        self._gym = NemoRL(settings)

    def spin_up(self) -> dict[str, Any]:
        self._gym.spin_up()
        processes = self._gym._rh._processes
        return {
            "in_main_thread": threading.current_thread() is threading.main_thread(),
            "pids": {name: process.pid for name, process in processes.items()},
            "address": self._gym._rh._server_client.global_config_dict.ray_head_node_address,
            "mask": [_blocked(process.pid) for process in processes.values() if not process.is_remote],
        }

    def run_rollouts(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self._gym.run_rollouts(rows)

    def poll(self) -> None:
        self._gym._rh.poll()

    def shutdown(self) -> None:
        self._gym.shutdown()


def _blocked(pid: int) -> int:
    """The signals a process blocks, as a bit set."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:  # noqa: PTH123
        return next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk:"))
