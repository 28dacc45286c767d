"""Whether a LiteLLM proxy may be used: it has to be up, and of a release that is known to be sound."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any

from nemo_gym.config.errors import ConfigError

OLDEST = (1, 83, 0)
COMPROMISED = frozenset({"1.82.7", "1.82.8"})
TIMEOUT_SECONDS = 5.0

_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def check_proxy(base_url: str, api_key: str) -> str:
    """The proxy's version. Raises ConfigError when it doesn't answer or its version can't be used."""
    url = f"{base_url.rstrip('/').removesuffix('/v1')}/health/readiness/details"
    details = _details(url, api_key)
    version = details.get("litellm_version")
    if not isinstance(version, str):
        raise ConfigError(f"{url} doesn't name its litellm_version: is a LiteLLM proxy listening there?")
    check_version(version)
    return version


def check_version(version: str) -> None:
    """Raises ConfigError unless `version` is a plain release of 1.83.0 or later."""
    if version.removeprefix("v") in COMPROMISED:
        raise ConfigError(f"LiteLLM {version} was published by an attacker: stop it and install 1.83.0 or later.")
    found = _RELEASE.fullmatch(version)
    if found is None:
        raise ConfigError(f"LiteLLM {version!r} is no plain release: use 1.83.0 or later, without a suffix.")
    if tuple(map(int, found.groups())) < OLDEST:
        raise ConfigError(f"LiteLLM {version} is too old: use 1.83.0 or later.")


def _details(url: str, api_key: str) -> dict[str, Any]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
            details = json.loads(reply.read())
    except urllib.error.HTTPError as error:
        raise ConfigError(f"The LiteLLM proxy isn't ready: {url} answered {error.code}.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"The LiteLLM proxy can't be reached: {url}: {error}.") from None
    if not isinstance(details, dict):
        raise ConfigError(f"{url} didn't answer with a JSON object: is a LiteLLM proxy listening there?")
    return details
