"""`gym env status`: the servers behind a head server, and whether they answer."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from nemo_gym.launch.status import ServerStatus, probe, probe_url, server_instances_at, status_lines

_UNKNOWN_TO_JSON = ("config_path", "dir_path", "start_time")


class StatusCommand:
    """Asks the head server at `head_url` for its servers."""

    def __init__(self, head_url: str = "http://127.0.0.1:11000") -> None:
        self.head_url = head_url

    def discover_servers(self) -> list[dict[str, Any]]:
        """The servers' records with `status` and `uptime_seconds`; none, and a warning, when no head server answers."""
        servers = server_instances_at(self.head_url)
        if servers is None:
            print(f"Warning: no head server answers at {self.head_url}.", file=sys.stderr)
            return []
        now = time.time()
        for server, status in zip(servers, probe(servers), strict=True):
            started = server.get("start_time")
            server["status"] = status
            server["uptime_seconds"] = now - started if isinstance(started, int | float) else None
        return servers

    def check_health(self, server: dict[str, Any]) -> ServerStatus:
        """Whether one server answers."""
        return probe_url(server.get("url"))

    def display_status(self, servers: list[dict[str, Any]], *, as_json: bool = False) -> None:
        """Print what was discovered."""
        if as_json:
            print(json.dumps([server | dict.fromkeys(_UNKNOWN_TO_JSON) for server in servers], indent=4))
            return
        if not servers:
            print("No NeMo Gym servers found.")
            return
        for line in status_lines(servers):
            print(line)
