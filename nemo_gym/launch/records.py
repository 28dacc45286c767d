"""How a server shows itself to people and to `/server_instances`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nemo_gym.launch.plan import ServerPlan


def display_record(plan: ServerPlan, host: str, port: int, pid: int, start_time: float) -> dict[str, Any]:
    """The record of one server, keys in the order in which they are shown. `start_time`: seconds since the epoch."""
    instance = plan.instance
    return {
        "config_path": instance.name,
        "dir_path": str(plan.directory),
        "entrypoint": instance.entrypoint,
        "host": host,
        "name": instance.implementation,
        "pid": pid,
        "port": port,
        "process_name": instance.name,
        "server_type": instance.server_type,
        "start_time": start_time,
        "status": None,
        "uptime_seconds": None,
        "url": f"http://{f'[{host}]' if ':' in host else host}:{port}",
    }


def display_records(
    plans: Sequence[ServerPlan],
    addresses: Mapping[str, tuple[str, int]],
    pids: Mapping[str, int],
    before: Iterable[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Those of all servers now; a process that stands in the records of `before` has started when they say."""
    now = time.time()
    started = {(record["process_name"], record["pid"]): record["start_time"] for record in before}
    return [
        display_record(plan, *addresses[plan.name], pids[plan.name], started.get((plan.name, pids[plan.name]), now))
        for plan in plans
    ]


def numbered(plans: Iterable[ServerPlan]) -> list[str]:
    """`[1] mcqa (resources_servers/mcqa)`, one line a server."""
    return [f"[{index}] {plan.name} ({plan.component})" for index, plan in enumerate(plans, start=1)]


def instance_table(records: Iterable[dict[str, Any]]) -> str:
    """The servers with all that is known of them."""
    hidden = ("start_time", "status", "uptime_seconds")
    blocks = [
        f"[{index}] {record['process_name']} ({record['server_type']}/{record['name']})\n"
        + "\n".join(f"    {key}: {value}" for key, value in record.items() if key not in hidden)
        for index, record in enumerate(records, start=1)
    ]
    rule = "#" * 100
    return "\n".join([rule, "#", "# Server instances", "#", rule, "", *blocks, ""])
