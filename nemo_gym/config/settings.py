"""The settings the config always ends up with, checked and with their defaults."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config import keys
from nemo_gym.config.addresses import fill_in_addresses
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import ServerInstanceConfig
from nemo_gym.config.interpolations import interpolation_error
from nemo_gym.config.notices import notify
from nemo_gym.config.requirement_pins import parent_version_pins
from nemo_gym.config.roots import CACHE_DIR, RESULTS_DIR, WORKING_DIR

_SWITCHES = (
    keys.USE_ABSOLUTE_IP_KEY_NAME,
    keys.SKIP_VENV_IF_PRESENT_KEY_NAME,
    keys.DRY_RUN_KEY_NAME,
)
_DEFAULT_TIMEOUT_SECONDS = 600
_DEFAULT_UV_LOCK_TIMEOUT_SECONDS = 1800


def fill_in_settings(
    config: DictConfig, instances: list[ServerInstanceConfig], *, offline: bool = False
) -> list[ConfigError]:
    """Check the settings of a config and set what is absent, addresses of its servers included, in place.

    Offline nothing outside the config is asked or changed: no host lookup, no probing, no environment variables.
    """
    steps: list[Callable[[], list[ConfigError] | None]] = [
        lambda: _check_switches(config),
        lambda: fill_in_addresses(config, instances, offline=offline),
        lambda: _inherit_skip_verification(config, instances),
        lambda: _check_capture_folder(config, instances),
        lambda: _versions(config),
        lambda: _timeouts(config),
        lambda: _folders(config),
    ]
    problems: list[ConfigError] = []
    for step in steps:
        try:
            problems += step() or []
        except ConfigError as error:
            problems.append(error)
        except OmegaConfBaseException as error:
            problems.append(interpolation_error(error))
    if not offline and not problems:
        export_uv_settings(config)
    return problems


def export_uv_settings(config: DictConfig) -> None:
    """Let every uv that is run from here use the config's cache and lock timeout."""
    os.environ["UV_CACHE_DIR"] = str(config[keys.UV_CACHE_DIR_KEY_NAME])
    if config[keys.UV_LOCK_TIMEOUT_SECONDS_KEY_NAME] is not None:
        os.environ["UV_LOCK_TIMEOUT"] = str(config[keys.UV_LOCK_TIMEOUT_SECONDS_KEY_NAME])


def _check_switches(config: DictConfig) -> list[ConfigError]:
    wrong = [key for key in _SWITCHES if isinstance(config.get(key), str)]
    if not isinstance(config.get(keys.ALLOW_OPENAI_VERSION_SKEW_KEY_NAME, False), bool):
        wrong.append(keys.ALLOW_OPENAI_VERSION_SKEW_KEY_NAME)
    return [ConfigError(f"{key} must be true or false, not {config.get(key)!r}.") for key in wrong]


def _inherit_skip_verification(config: DictConfig, instances: list[ServerInstanceConfig]) -> None:
    """Agents skip verification where the whole run does, unless their block says otherwise."""
    for key in (keys.SKIP_VERIFICATION_KEY_NAME, keys.SKIP_VERIFICATION_REWARD_KEY_NAME):
        value = config.get(key)
        for instance in instances:
            block = instance.get_inner_run_server_config_dict()
            if value is not None and instance.SERVER_TYPE == keys.RESPONSES_API_AGENTS and key not in block:
                block[key] = value


def _check_capture_folder(config: DictConfig, instances: list[ServerInstanceConfig]) -> list[ConfigError]:
    """Model servers that are to record their calls must know where."""
    is_needed = any(instance.SERVER_TYPE == keys.RESPONSES_API_MODELS for instance in instances)
    if not (is_needed and config.get(keys.OBSERVABILITY_ENABLED_KEY_NAME)):
        return []
    key, folder = keys.MODEL_CALL_CAPTURE_DIR_KEY_NAME, config.get(keys.MODEL_CALL_CAPTURE_DIR_KEY_NAME)
    if isinstance(folder, str) and Path(folder).is_absolute():
        return []
    got = "" if folder is None else f", not {folder!r}"
    return [
        ConfigError(
            f"{keys.OBSERVABILITY_ENABLED_KEY_NAME} needs {key}, the absolute path of a folder that every server can "
            f"write to{got}: add +{key}=/path/to/model-calls."
        )
    ]


def _versions(config: DictConfig) -> None:
    _default(config, keys.ALLOW_OPENAI_VERSION_SKEW_KEY_NAME, False)
    if config.get(keys.HEAD_SERVER_DEPS_KEY_NAME) is None:
        skew = config[keys.ALLOW_OPENAI_VERSION_SKEW_KEY_NAME] is True
        config[keys.HEAD_SERVER_DEPS_KEY_NAME] = parent_version_pins(allow_openai_skew=skew)
    running = platform.python_version()
    wanted = config.get(keys.PYTHON_VERSION_KEY_NAME)
    if wanted is not None and str(wanted) != running:
        notify(f"{keys.PYTHON_VERSION_KEY_NAME}={wanted} is ignored: servers use the Python that runs Gym, {running}.")
    config[keys.PYTHON_VERSION_KEY_NAME] = running


def _timeouts(config: DictConfig) -> list[ConfigError]:
    _default(config, keys.SKIP_VENV_IF_PRESENT_KEY_NAME, False)
    _default(config, keys.DRY_RUN_KEY_NAME, False)
    timeouts = (keys.SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME, keys.MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME)
    for key in timeouts:
        _default(config, key, _DEFAULT_TIMEOUT_SECONDS)
    return [
        ConfigError(f"{key} must be a number of seconds, not {config[key]!r}.")
        for key in timeouts
        if isinstance(config[key], bool) or not isinstance(config[key], int | float)
    ]


def _folders(config: DictConfig) -> list[ConfigError]:
    problems = [
        *_absolute_folder(config, keys.RESULTS_DIR_KEY_NAME, RESULTS_DIR),
        *_absolute_folder(config, keys.CACHE_DIR_KEY_NAME, CACHE_DIR),
    ]
    if problems:
        return problems
    uv_cache = Path(config[keys.CACHE_DIR_KEY_NAME]) / "uv"
    _default(config, keys.UV_CACHE_DIR_KEY_NAME, str(uv_cache))
    if keys.UV_LOCK_TIMEOUT_SECONDS_KEY_NAME not in config:
        inherited = os.environ.get("UV_LOCK_TIMEOUT", "")
        seconds = int(inherited) if inherited.isdecimal() else _DEFAULT_UV_LOCK_TIMEOUT_SECONDS
        config[keys.UV_LOCK_TIMEOUT_SECONDS_KEY_NAME] = seconds
    return _absolute_folder(config, keys.UV_VENV_DIR_KEY_NAME, WORKING_DIR)


def _absolute_folder(config: DictConfig, key: str, default: Path) -> list[ConfigError]:
    value = config.get(key, str(default))
    if not isinstance(value, str) or not value.strip():
        return [ConfigError(f"{key} must be the path of a folder, not {value!r}.")]
    config[key] = str(Path(value).expanduser().absolute())
    return []


def _default(config: DictConfig, key: str, value: Any) -> None:
    if config.get(key) is None:
        config[key] = value
