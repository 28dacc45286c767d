"""Whether this machine lets us make namespaces, found out once by trying, and what to do where it doesn't."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.errors import SandboxUnavailableError
from nemo_gym.sandbox.providers.namespaces.box import Box, Limits, Way
from nemo_gym.sandbox.providers.namespaces.launch import Report, jail_command

NOBODY = 65534
_FIRST_UID, _UIDS = 1_900_000_000, 200_000_000  # far from users, containers and systemd's dynamic users
_PROBE_SECONDS = 20.0

_SYSCTLS = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
_CONTAINER = (
    "in a container, start it with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined` "
    "or with `--cap-add SYS_ADMIN`"
)


@dataclass(frozen=True)
class Isolation:
    """What this process can do: make namespaces by `way`, or not: `refusal` then says what to do.

    By every way but `own`, which is for ordinary users, programs run as a user nobody else is.
    """

    way: Way = "own"
    refusal: str = ""

    def new_uid(self) -> int | None:
        """The user of this machine that a program runs as; None where it is our own."""
        if self.way == "own":
            return None
        uid = _FIRST_UID + secrets.randbelow(_UIDS)
        return uid if _is_mapped(uid) else NOBODY


@cache
def isolation() -> Isolation:
    """Found out at the first call, in some 30 ms, which block."""
    if sys.platform != "linux":
        return Isolation(refusal="Namespaces are Linux's: use the sandbox provider `docker` here.")
    ways: list[Way] = ["plain", "mapped"] if os.geteuid() == 0 else ["own"]
    trouble: dict[str, Any] = {}
    for way in ways:
        trouble = _attempt(Isolation(way))
        if not trouble:
            return Isolation(way)
    return Isolation(refusal=_advice(trouble))


def required_isolation() -> Isolation:
    """`isolation()`. Raises SandboxUnavailableError with its refusal."""
    found = isolation()
    if found.refusal:
        raise SandboxUnavailableError(found.refusal)
    return found


def _attempt(wanted: Isolation) -> dict[str, Any]:
    """Nothing when a program ran, else the report of the jail."""
    spec = Box(Limits(wall_s=_PROBE_SECONDS)).spec(wanted.way, wanted.new_uid())
    spec |= {"argv": ["/bin/sh", "-c", "exit 7"], "env": {}, "cwd": "/"}
    with contextlib.closing(Report()) as report, jail_command(spec, report) as (told, command):
        fds = (told.fileno(), report.sink)
        try:
            done = subprocess.run(
                command, env={}, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=fds, timeout=2 * _PROBE_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error), "errno": getattr(error, "errno", 0) or 0}
        report.handed_over()
        said = report.read() or {"error": done.stderr.decode(errors="replace").strip()[-300:], "errno": 0}
    if said.get("status") == 7 << 8:
        return {}
    return said if "error" in said else {"error": f"a trial ended with {said}", "errno": 0}


def _advice(trouble: dict[str, Any]) -> str:
    for path, value, command in _SYSCTLS:
        if _content(path) == value:
            return f"This kernel forbids user namespaces: run `sudo {command}`, or use the sandbox provider `docker`."
    if trouble["errno"] in (errno.EPERM, errno.EACCES):
        return (
            f"Making namespaces is not permitted here ({trouble['error']}): {_CONTAINER}, "
            f"or use the sandbox provider `docker`."
        )
    return f"Namespaces do not work here ({trouble['error']}): use the sandbox provider `docker`."


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def _is_mapped(uid: int) -> bool:
    """Whether this process's user namespace has the user."""
    ranges = [[int(part) for part in line.split()] for line in _content("/proc/self/uid_map").splitlines()]
    return any(first <= uid < first + count for first, _, count in ranges)
