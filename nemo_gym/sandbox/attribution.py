"""Who a sandbox is for: labels that let the people who run a service tell whose it is."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Mapping

FIELDS = ("team", "user", "workload", "run")

_VARIABLES = {
    "team": ("NEMO_GYM_TEAM", "SLURM_JOB_ACCOUNT"),
    "user": ("NEMO_GYM_USER", "SLURM_JOB_USER"),
    "workload": ("NEMO_GYM_WORKLOAD", "SLURM_JOB_NAME", "NEMO_GYM_CONFIG_PATH"),
    "run": ("NEMO_GYM_RUN_ID",),
}
_PROCESS_RUN = secrets.token_hex(6)


def resolve_attribution(explicit: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The known ones of team, user, workload and run: what is given, else the environment's, else what can be told.

    `run` is always there: without NEMO_GYM_RUN_ID, 12 hex digits that are this process's.
    """
    given = explicit or {}
    found = {field: given.get(field) or _from_environment(field) or _told(field) for field in FIELDS}
    return {field: value for field, value in found.items() if value}


def _from_environment(field: str) -> str | None:
    return next((value for name in _VARIABLES[field] if (value := os.environ.get(name))), None)


def _told(field: str) -> str | None:
    if field == "run":
        return _PROCESS_RUN
    return _login() if field == "user" else None


def _login() -> str | None:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return None
    return None if name == "root" else name
