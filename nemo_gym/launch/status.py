"""What a running set of servers says about itself, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

DISCOVER_SECONDS = 5.0
PROBE_SECONDS = 2.0
_PROBES_AT_ONCE = 32

ServerStatus = Literal["success", "connection_error", "timeout", "unknown_error"]


def server_instances_at(head_url: str) -> list[dict[str, Any]] | None:
    """The records of the servers behind a head server; None when none answers there."""
    try:
        with _open(f"{head_url.rstrip('/')}/server_instances", DISCOVER_SECONDS) as reply:
            content = json.loads(reply.read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return [record for record in content if isinstance(record, dict)] if isinstance(content, list) else None


def probe(instances: Iterable[Mapping[str, Any]], timeout: float = PROBE_SECONDS) -> list[ServerStatus]:
    """Whether each server answers, in the given order; any HTTP answer is a success."""
    urls = [instance.get("url") for instance in instances]
    if not urls:
        return []
    with ThreadPoolExecutor(min(_PROBES_AT_ONCE, len(urls))) as pool:
        return list(pool.map(lambda url: probe_url(url, timeout), urls))


def probe_url(url: object, timeout: float = PROBE_SECONDS) -> ServerStatus:
    """The same for one address."""
    if not isinstance(url, str) or not url:
        return "unknown_error"
    try:
        with _open(url, timeout):
            return "success"
    except urllib.error.HTTPError as error:
        error.close()
        return "success"
    except TimeoutError:
        return "timeout"
    except urllib.error.URLError as error:
        return "timeout" if isinstance(error.reason, TimeoutError) else "connection_error"
    except (OSError, http.client.HTTPException):
        return "connection_error"
    except ValueError:
        return "unknown_error"


def uptime_text(seconds: float) -> str:
    """`1d 2h 3m 4.5s`."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{int(days)}d {int(hours)}h {int(minutes)}m {rest:.1f}s"


def status_lines(servers: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a person reads; the records carry `status` and `uptime_seconds`."""
    lines = ["NeMo Gym servers:"]
    for index, server in enumerate(servers, start=1):
        mark = "✓" if server.get("status") == "success" else "✗"
        uptime = server.get("uptime_seconds")
        shown = {key: server.get(key) for key in ("server_type", "name", "port", "pid")}
        shown["uptime"] = uptime_text(float(uptime)) if uptime is not None else "unknown"
        title = f"{server.get('process_name')} ({server.get('server_type')}/{server.get('name')})"
        lines += [f"[{index}] {mark} {title}", *(f"    {key}: {value}" for key, value in shown.items())]
    healthy = sum(server.get("status") == "success" for server in servers)
    return [*lines, f"{len(servers)} servers found ({healthy} healthy, {len(servers) - healthy} unhealthy)"]


def _open(url: str, timeout: float) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(url, timeout=timeout)
