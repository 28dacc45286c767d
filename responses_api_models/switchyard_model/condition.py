"""What a run's results depend on beside the model's name: the routing proxy. Two files say it, as far as is known."""

from __future__ import annotations

import hashlib
import json
import logging
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nemo_gym.config.secrets import mask_userinfo, recursively_hide_secrets

CONDITION_FILE = "switchyard-condition.json"
STATS_FILE = "switchyard-stats.json"
_STATS_TIMEOUT_SECONDS = 5.0

_logger = logging.getLogger("nemo_gym.switchyard_model")


def write_condition(directory: Path, config: dict[str, Any], deployment: Path | None) -> None:
    """The server's settings without secrets, and the digest of the deployment file."""
    settings = json.loads(json.dumps(config, default=str))
    recursively_hide_secrets(settings)
    condition = {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": settings,
        "deployment_sha256": None if deployment is None else hashlib.sha256(deployment.read_bytes()).hexdigest(),
    }
    _write(directory / CONDITION_FILE, condition)


def write_stats(directory: Path, root_url: str, calls: Counter[str]) -> None:
    """How many calls were made and failed here, and what the proxy itself counted, if it says."""
    _write(directory / STATS_FILE, {"calls": dict(calls), "proxy": _proxy_stats(root_url)})


def _proxy_stats(root_url: str) -> Any:
    try:
        with urllib.request.urlopen(f"{root_url}/v1/stats", timeout=_STATS_TIMEOUT_SECONDS) as reply:
            return json.loads(reply.read())
    except (OSError, ValueError) as error:
        _logger.warning("The Switchyard proxy's statistics can't be read: %s", error)
        return None


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(mask_userinfo(json.dumps(content, indent=2, default=str)) + "\n")
    except OSError as error:
        _logger.warning("%s can't be written: %s", path, error)
