"""The command line's overrides: Hydra's grammar, applied to nothing but themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.origins import Origins
from nemo_gym.config.secrets import hide_secrets_in_overrides

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_HELP_FLAGS = frozenset({"-h", "--help"})


@dataclass
class Overrides:
    """What overrides set, which of them set it, and what was wrong with the others."""

    config: DictConfig = field(default_factory=lambda: OmegaConf.create({}))
    origins: Origins = field(default_factory=Origins)
    problems: list[ConfigError] = field(default_factory=list)


def parse_overrides(tokens: Iterable[str]) -> Overrides:
    """Read overrides in order: `+key=value` adds, `++key=value` adds or replaces, `key=value` and `~key` change or
    delete what an earlier override added. Help flags and Hydra's own settings (`hydra.…`) mean nothing here.
    """
    result = Overrides()
    wanted = [token for token in tokens if token not in _HELP_FLAGS]
    if not wanted:
        return result
    parse = _grammar()
    for token in wanted:
        try:
            override = parse(token)
            if not override.is_hydra_override():
                _apply(result, override, token)
        except ConfigError as error:
            result.problems.append(error)
    return result


def _grammar() -> Callable[[str], Override]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()

    def parse(token: str) -> Override:
        try:
            return parser.parse_override(token)
        except HydraException as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(
                f"The override {_shown(token)} can't be read ({reason}): write +key=value, and put values with "
                f"spaces, commas or brackets in quotes, like '+key=\"a, b\"'."
            ) from error

    return parse


def _apply(result: Overrides, override: Override, token: str) -> None:
    key = override.key_or_group
    if override.package is not None or "/" in key:
        raise ConfigError(f"The override {_shown(token)} names a config group (`/` or `@`), which Gym doesn't have.")
    if override.is_sweep_override():
        raise ConfigError(
            f"The override {_shown(token)} gives several values: write a list as '+{key}=[a,b]' "
            f"and text with commas as '+{key}=\"a,b\"'."
        )
    try:
        _apply_checked(result, override, token)
    except (OmegaConfBaseException, ValueError, TypeError) as error:  # OmegaConf lets some through
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"The override {_shown(token)} can't be applied: {reason}.") from error


def _apply_checked(result: Overrides, override: Override, token: str) -> None:
    key, value = override.key_or_group, override.value()
    present = OmegaConf.select(result.config, key, throw_on_resolution_failure=False)
    if override.is_delete():
        _delete(result, key, value, present, token)
        return
    if override.is_add() and present is not None and not isinstance(value, dict | list):
        raise ConfigError(
            f"{_shown(token)} adds `{key}`, which is set already: give it once, or write ++{key}= to replace it."
        )
    if not (override.is_add() or override.is_force_add()) and present is None:
        raise ConfigError(
            f"{_shown(token)} changes `{key}`, but a bare key=value only changes what an earlier override added: "
            f"write `++{_shown(token)[1:]} to set it, whatever set it before."
        )
    OmegaConf.update(result.config, key, value, merge=True, force_add=True)
    result.origins.lay_at(key.split("."), value, f"{_shown(token)} on the command line")


def _delete(result: Overrides, key: str, value: Any, present: Any, token: str) -> None:
    if present is None:
        raise ConfigError(
            f"{_shown(token)} deletes `{key}`, but ~ only deletes what an earlier override added: to leave a key out "
            f"of a config, give its mapping `_delete_key: {key.rpartition('.')[2]}`."
        )
    if value is not None and value != present:
        raise ConfigError(f"{_shown(token)} deletes `{key}` only if it has that value, and it has another one.")
    parent_key, _, last = key.rpartition(".")
    parent = OmegaConf.select(result.config, parent_key) if parent_key else result.config
    with open_dict(parent):
        del parent[last]
    result.origins.drop(key.split("."))


def _shown(token: str) -> str:
    return f"`{hide_secrets_in_overrides([token])[0]}`"
