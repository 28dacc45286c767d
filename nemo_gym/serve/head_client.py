"""Asking a head server for the config of its run, and any server whether it is there. Blocking, standard library."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Literal, TypeAlias

from nemo_gym.config.handover import read_token, run_directory
from nemo_gym.serve.errors import UnreachableHeadError
from nemo_gym.serve.guards import is_loopback

ServerStatus: TypeAlias = Literal["success", "connection_error", "timeout", "unknown_error"]

FETCH_TIMEOUT_SECONDS = 30.0
_THIS_MACHINE = frozenset({"0.0.0.0", "::"})
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch_config_text(host: str, port: int) -> str:
    """YAML of a run's config: the full one when this user owns the run, else with secrets masked.

    Raises UnreachableHeadError, a ValueError that names the URL.
    """
    url = f"http://{_bracketed(host)}:{port}/global_config_dict_yaml"
    request = urllib.request.Request(url, headers=_authorization(host, port))
    try:
        with _direct.open(request, timeout=FETCH_TIMEOUT_SECONDS) as answer:
            text = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnreachableHeadError(
            f"No head server answers at {url} ({_reason(error)}). Are the servers running (`gym env start`)? If they "
            f"listen on another host or port, pass +head_server.host=… and +head_server.port=…."
        ) from error
    if not isinstance(text, str):
        raise UnreachableHeadError(f"What answers at {url} is no head server of NeMo Gym: its reply is not a config.")
    return text


def probe(base_url: str, timeout_seconds: float) -> ServerStatus:
    """Whether a server answers at all; any HTTP status counts."""
    try:
        with _direct.open(base_url, timeout=timeout_seconds):
            return "success"
    except urllib.error.HTTPError as error:
        error.close()
        return "success"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _status_of(error)


def _status_of(error: Exception) -> ServerStatus:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "timeout"
    return "connection_error" if isinstance(cause, OSError) else "unknown_error"


def _authorization(host: str, port: int) -> dict[str, str]:
    """The run's token, which is told to this machine only."""
    token = read_token(run_directory(port)) if is_loopback(host) or host in _THIS_MACHINE else None
    return {"Authorization": f"Bearer {token}"} if token else {}


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return getattr(reason, "strerror", None) or str(reason) or type(error).__name__


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
