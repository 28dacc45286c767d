"""Values written as `${…}`: they stay as written in the config and are resolved by whoever uses them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from nemo_gym.config.errors import ConfigError, ConfigInterpolationError, raise_problems
from nemo_gym.config.hints import enumeration
from nemo_gym.config.keys import (
    POLICY_API_KEY_KEY_NAME,
    POLICY_BASE_URL_KEY_NAME,
    POLICY_MODEL_NAME_KEY_NAME,
    RESPONSES_API_MODELS,
)
from nemo_gym.config.origins import Origins, dotted

POLICY_KEYS = (POLICY_BASE_URL_KEY_NAME, POLICY_API_KEY_KEY_NAME, POLICY_MODEL_NAME_KEY_NAME)
_FLAG_OF_POLICY_KEY = dict(zip(POLICY_KEYS, ("--model-url", "--model-api-key", "--model"), strict=True))
_REFERENCE = re.compile(r"\$\{\s*(?:oc\.select\s*:\s*)?([^\s:{}.\[,]+)")

_RAISED_BY_RESOLVER = re.compile(r"^\w+ raised while resolving interpolation: ")


def mentioned_keys(value: object) -> Iterator[str]:
    """The top-level keys that `${key}`, `${key.below}` and `${oc.select:key}` name, anywhere in plain data."""
    if isinstance(value, str):
        yield from _REFERENCE.findall(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from mentioned_keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from mentioned_keys(item)


def resolved(config: DictConfig, origins: Origins | None = None) -> dict[str, Any]:
    """The config as plain data with every `${…}` resolved.

    Raises ConfigInterpolationError that lists all that don't.
    """
    raise_on_unresolved(config, origins)
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))


def raise_on_unresolved(
    config: DictConfig, origins: Origins | None = None, *, within: Collection[str] | None = None
) -> None:
    """Check that every `${…}` has a value, or those below the top-level keys `within`.

    Policy keys that a model server waits for make one sentence together.
    """
    problems: list[ConfigError] = []
    wanting: dict[str, str] = {}
    for path, error in _unresolved(config, ()):
        if within is not None and path[0] not in within:
            continue
        key = _missing_key(error)
        if key in POLICY_KEYS:
            wanting.setdefault(key, dotted(path))
        else:
            problems.append(_problem(path, key, error, origins))
    for key, place in _empty_policy_values(config):
        wanting.setdefault(key, place)
    if wanting:
        problems.insert(0, _policy_problem(config, wanting))
    raise_problems(problems)


def interpolation_error(error: OmegaConfBaseException) -> ConfigInterpolationError:
    """The error a person reads for one OmegaConf met while resolving."""
    return _problem(str(getattr(error, "full_key", "") or "a value"), _missing_key(error), error, None)


def tolerantly_resolved(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """The config as plain data, resolved where possible and as written elsewhere."""
    live = config if isinstance(config, DictConfig) else OmegaConf.create(dict(config))
    return cast(dict[str, Any], _tolerant(live))


def _tolerant(container: DictConfig | ListConfig) -> dict[Any, Any] | list[Any]:
    values = ((key, _tolerant_value(container, key)) for key in _keys(container))
    return dict(values) if isinstance(container, DictConfig) else [value for _, value in values]


def _tolerant_value(container: DictConfig | ListConfig, key: Any) -> Any:
    node = container._get_node(key)
    try:
        value = None if node is None else container[key]
    except OmegaConfBaseException:
        return node._value()  # type: ignore[union-attr]
    return _tolerant(value) if isinstance(value, DictConfig | ListConfig) else value


def _unresolved(
    container: DictConfig | ListConfig, prefix: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], OmegaConfBaseException]]:
    for key in _keys(container):
        node = container._get_node(key)
        if node is None or node._is_missing() or node._is_none():  # type: ignore[union-attr]
            continue
        try:
            value = container[key]
        except OmegaConfBaseException as error:
            yield (*prefix, key), error
            continue
        if isinstance(value, DictConfig | ListConfig) and not node._is_interpolation():  # type: ignore[union-attr]
            yield from _unresolved(value, (*prefix, key))


def _keys(container: DictConfig | ListConfig) -> list[Any]:
    return list(container) if isinstance(container, DictConfig) else list(range(len(container)))


def _missing_key(error: OmegaConfBaseException) -> str | None:
    """The key of `Interpolation key 'x' not found`, which OmegaConf says in words only."""
    if not isinstance(error, InterpolationKeyError):
        return None
    found = re.search(r"Interpolation key '([^']*)' not found", str(error))
    return found[1] if found else None


def _problem(
    path: tuple[Any, ...] | str, key: str | None, error: OmegaConfBaseException, origins: Origins | None
) -> ConfigInterpolationError:
    place = path if isinstance(path, str) else dotted(path)
    origin = origins.of(path) if origins and not isinstance(path, str) else None
    said_by = f" ({origin})" if origin else ""
    if key is not None:
        return ConfigInterpolationError(
            f"{place}{said_by} refers to `${{{key}}}`, which nothing sets: add `++{key}=<value>` or set it in env.yaml."
        )
    reason = _RAISED_BY_RESOLVER.sub("", str(error).splitlines()[0]).strip("\"'.")
    return ConfigInterpolationError(f"{place}{said_by} can't be resolved: {reason}.")


def _empty_policy_values(config: DictConfig) -> Iterator[tuple[str, str]]:
    """The address and name of the policy model where a model server asks for them and they are set to nothing."""
    for key in (POLICY_BASE_URL_KEY_NAME, POLICY_MODEL_NAME_KEY_NAME):
        if key in config and _is_empty(config, key) and (place := _asked_for_by_a_model(config, key)):
            yield key, place


def is_empty(config: DictConfig, key: str) -> bool:
    """Whether a key is absent, unresolvable, null or empty text."""
    return key not in config or _is_empty(config, key)


def _is_empty(config: DictConfig, key: str) -> bool:
    try:
        value = OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return True
    return value is None or value == "" or value == []


def _asked_for_by_a_model(config: DictConfig, key: str) -> str | None:
    for name in config:
        entry = config._get_node(name)
        if not isinstance(entry, DictConfig) or RESPONSES_API_MODELS not in entry:
            continue
        plain = OmegaConf.to_container(entry, resolve=False)
        if key in set(mentioned_keys(plain)):
            return str(name)
    return None


def _policy_problem(config: DictConfig, wanting: Mapping[str, str]) -> ConfigInterpolationError:
    place = next(iter(wanting.values()))
    instance = place.partition(".")[0]
    missing = [key for key in POLICY_KEYS if key in wanting or (len(wanting) > 1 and is_empty(config, key))]
    flags = enumeration([_FLAG_OF_POLICY_KEY[key] for key in missing])
    return ConfigInterpolationError(
        f"The model server `{instance}` needs {enumeration(missing)}: pass {flags}, or set them in env.yaml."
    )
