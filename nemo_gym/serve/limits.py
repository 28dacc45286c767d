"""Limits of the operating system."""

from __future__ import annotations

import resource

OPEN_FILES = 65_535
FEW_OPEN_FILES = 4_096


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
