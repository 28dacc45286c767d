"""Limits of the operating system."""

from __future__ import annotations

import math
import resource

from nemo_gym.serve.errors import OpenFilesError

OPEN_FILES = 65_535
FEW_OPEN_FILES = 4_096
OTHER_FILES = 128
"""What a process opens besides the sockets of rollouts."""


def raise_open_files(target: int = OPEN_FILES) -> str | None:
    """Raise the soft limit of open files to `target` or as far as the hard limit goes; a sentence when that is bad."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return None
    wanted = target if hard == resource.RLIM_INFINITY else min(target, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), hard))
    except (OSError, ValueError) as error:
        return f"The limit of open files stays at {soft} ({error}): raise it with `ulimit -n {target}`."
    if wanted < min(target, FEW_OPEN_FILES):
        return f"Only {wanted} files may be open, so many requests at once may fail: raise `ulimit -n`."
    return None


def check_open_files(rollouts: int, *, server_processes: int = 1) -> str | None:
    """Whether as many rollouts can be in flight as there are to be; a sentence when servers may run short.

    Each needs a socket here, and in a server one to the asking and one to the asked side; `server_processes` share the
    rollouts. The soft limit is raised first. Raises OpenFilesError when this process can't have so many.
    """
    here = rollouts + OTHER_FILES
    in_a_server = 2 * math.ceil(rollouts / max(1, server_processes)) + OTHER_FILES
    raise_open_files(max(OPEN_FILES, here, in_a_server))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY or allowed >= max(here, in_a_server):
        return None
    most = max(1, allowed - OTHER_FILES)
    if allowed < here:
        raise OpenFilesError(
            f"{rollouts} rollouts at once need {here} open files, and this process may have {allowed}: raise the limit "
            f"with `ulimit -n {here}`, or ask for fewer with --concurrency {most}."
        )
    fitting = max(1, most // 2 * max(1, server_processes))
    return (
        f"{rollouts} rollouts at once may need {in_a_server} open files in a server, which may have {allowed}: raise "
        f"the limit with `ulimit -n {in_a_server}`, or use --concurrency {fitting}."
    )
