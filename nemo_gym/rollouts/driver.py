"""Functions that collect in Gym's place (`rollout_collection_driver`)."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from nemo_gym.config.errors import ConfigError

Driver = Callable[[Any, dict[str, Any]], Awaitable[Any]]


def load_driver(spec: str) -> Driver:
    """The function that `module.path:function` names. Raises ConfigError when there is none."""
    module_name, colon, function_name = spec.partition(":")
    if not (colon and module_name and function_name.isidentifier()):
        raise ConfigError(f"rollout_collection_driver is {spec!r}: it must read module.path:function.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"rollout_collection_driver: {module_name} can't be imported ({error}).") from error
    driver: Driver | None = getattr(module, function_name, None)
    if not callable(driver):
        raise ConfigError(f"rollout_collection_driver: {module_name} has no function {function_name}.")
    return driver
