"""A submit config as it may be shown and kept: without secrets."""

import re
from collections.abc import Iterator
from typing import Any

from nemo_gym.config.secrets import MASK, Redactor, looks_like_secret_key, recursively_hide_secrets, secret_values
from nemo_gym.orchestration.api import SubmitConfig
from nemo_gym.orchestration.values import EnvValue

_FLAG = re.compile(r"(?P<name>--?[A-Za-z][\w-]*|\b[A-Za-z_]\w*(?==))(?P<gap>=|\s+)(?P<value>[^\s;&|]+)")

_TIERS = ("prefill", "decode")
_SHELL_KEYS = ("extra_args", "pre_command", "command")


def shown(config: SubmitConfig) -> dict[str, Any]:
    """The config as plain data, complete but for secrets, which are masked; names of variables are none."""
    data = config.model_dump(mode="json")
    kept = _env_blocks(data)
    literals = {
        EnvValue.of(text).text
        for block in kept
        for name, text in block.items()
        if looks_like_secret_key(name) and text.startswith("lit:")
    }
    redactor = Redactor([*secret_values(_without_env(data)), *literals])
    saved = [(block, dict(block)) for block in kept]
    recursively_hide_secrets(data)
    for block, key in _shell_texts(data):
        block[key] = _FLAG.sub(_hidden_in_flag, block[key])
    for block, before in saved:
        block.update({name: _shown_value(name, text) for name, text in before.items()})
    return {str(key): value for key, value in redactor.in_data(data).items()}


def _shown_value(name: str, text: str) -> str:
    is_secret = text.startswith("lit:") and looks_like_secret_key(name)
    return f"lit:{MASK}" if is_secret else text


def _hidden_in_flag(flag: "re.Match[str]") -> str:
    """A secret's option or variable with its value masked, unless a variable is named there."""
    is_secret = looks_like_secret_key(flag["name"]) and not flag["value"].lstrip("\"'").startswith("$")
    return f"{flag['name']}{flag['gap']}{MASK}" if is_secret else flag[0]


def secrets_in_shell_texts(config: SubmitConfig) -> Iterator[tuple[str, str]]:
    """Where shell text of the user's own says a secret, and the option or variable it is the value of."""
    data = config.model_dump(mode="json")
    named = [(f"services.{name}", part) for name, part in data["services"].items()]
    named += [
        (f"{where}.{tier}", part[tier]) for where, part in named for tier in ("prefill", "decode") if tier in part
    ]
    named += [(f"driver.benchmarks.{name}", part) for name, part in data["driver"]["benchmarks"].items()]
    for where, part in named:
        for key in _SHELL_KEYS:
            for flag in _FLAG.finditer(part.get(key) or ""):
                if _hidden_in_flag(flag) != flag[0]:
                    yield f"{where}.{key}", flag["name"]


def _shell_texts(data: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the config holds text of a shell."""
    parts = [*data["services"].values(), *data["driver"]["benchmarks"].values()]
    parts += [service[tier] for service in data["services"].values() for tier in _TIERS if tier in service]
    for part in parts:
        for key in _SHELL_KEYS:
            if isinstance(part.get(key), str):
                yield part, key


def _env_blocks(data: Any) -> list[dict[str, str]]:
    """Every `env` mapping of services and driver. They are the very objects of `data`."""
    blocks = [data["driver"]["env"]]
    for service in data["services"].values():
        blocks.append(service["env"])
        blocks += [service[tier]["env"] for tier in _TIERS if tier in service]
    return blocks


def _without_env(data: Any) -> dict[str, Any]:
    services = {
        name: {key: value for key, value in service.items() if key != "env"}
        for name, service in data["services"].items()
    }
    driver = {key: value for key, value in data["driver"].items() if key != "env"}
    return {**data, "services": services, "driver": driver}
