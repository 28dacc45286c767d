"""What of this process's environment a command may see: what programs need to work, and no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable

PASSED = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CURL_CA_BUNDLE",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "PYTHONPATH",
        "REQUESTS_CA_BUNDLE",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
_PASSED_PREFIXES = ("LC_", "NEMO_GYM_RUN_MARKER_")  # a run finds its processes by the marker when it has to end them
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


def passed_environment(also: Iterable[str] = ()) -> dict[str, str]:
    """The variables of the allow-list, those named in `also`, and proxies whose address holds no password."""
    named = frozenset(also)
    return {name: value for name, value in os.environ.items() if name in named or _is_passed(name, value)}


def host_environment(*, everything: bool, also: Iterable[str] = ()) -> dict[str, str]:
    """The whole environment when asked for, else the passed part of it."""
    return dict(os.environ) if everything else passed_environment(also)


def _is_passed(name: str, value: str) -> bool:
    if name.lower() in _PROXIES:
        return "@" not in value
    return name in PASSED or name.startswith(_PASSED_PREFIXES)
