"""Everything a config is made of, from the weakest to the strongest: config files, env.yaml, the caller's dict,
the command line."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.includes import Includes, Layer, as_config, load_includes, paths_in
from nemo_gym.config.interpolations import interpolation_error
from nemo_gym.config.keys import CONFIG_PATHS_KEY_NAME
from nemo_gym.config.notices import notify
from nemo_gym.config.origins import Origins, dotted, leaves
from nemo_gym.config.overrides import Overrides
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.config.secrets import recursively_hide_secrets
from nemo_gym.config.yaml_files import load_yaml_mapping

ENV_FILE_NAME = "env.yaml"


@dataclass(frozen=True)
class Sources:
    """What a caller hands in. `dotenv_path` replaces the search for env.yaml and need not exist.

    `fallback_config_paths` are config files beneath all that are named.
    """

    initial: DictConfig | None = None
    overrides: Overrides = field(default_factory=Overrides)
    dotenv_path: Path | None = None
    reads_env_file: bool = True
    fallback_config_paths: tuple[str, ...] = ()


@dataclass
class Layers:
    """The layers as read, and what was wrong with them."""

    includes: Includes
    env_file: Layer
    initial: DictConfig
    command_line: Overrides
    problems: list[ConfigError]
    fallback_config_paths: tuple[str, ...] = ()

    def merged(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """All layers merged as plain data, `${…}` as written; `without` names what the command line is not heard on."""
        kept = [str(key) for key in self.command_line.config if key not in without]
        command_line = OmegaConf.masked_copy(self.command_line.config, kept)
        merged = plain(OmegaConf.merge(*self._below_command_line(), command_line))
        merged[CONFIG_PATHS_KEY_NAME] = self.includes.paths
        return self._fallbacks_last(merged)

    def below_command_line(self) -> dict[str, Any]:
        """All layers but the command line merged."""
        return plain(OmegaConf.merge(*self._below_command_line()))

    def named_files(self) -> dict[str, Any]:
        """The config files merged."""
        return plain(OmegaConf.merge({}, *(layer.config for layer in self.includes.layers)))

    def origins(self) -> Origins:
        """Who set what."""
        origins = self._origins_of_files()
        origins.lay(plain(self.env_file.config), self.env_file.label)
        origins.lay(plain(self.initial), "the initial config")
        origins.lay_over(self.command_line.origins)
        return origins

    def tell_what_env_file_replaces(self, origins: Origins) -> None:
        """Say where env.yaml has the last word over a config file that was named, since people expect the opposite."""
        files, env_file, by_files = self.named_files(), plain(self.env_file.config), self._origins_of_files()
        masked = [copy.deepcopy(layer) for layer in (env_file, files)]
        for layer in masked:
            recursively_hide_secrets(layer)
        for path, value in leaves(env_file):
            if path[0] == CONFIG_PATHS_KEY_NAME:
                continue  # those of a file are added to the list, whoever gave it
            before = _at(files, path)
            if before is None or before == value or origins.of(path) != self.env_file.label:
                continue
            hides_nothing = [_at(layer, path) for layer in masked] == [value, before]
            change = f": {value!r} instead of {before!r}" if hides_nothing else ""
            notify(f"{self.env_file.label} sets {dotted(path)} over {by_files.of(path)}{change}.")

    def _fallbacks_last(self, merged: dict[str, Any]) -> dict[str, Any]:
        """The same, what only fallback files hold behind all else: servers are listed in this order."""
        is_fallback = {layer.label: layer.label in self.fallback_config_paths for layer in self.includes.layers}
        asked_for = {key for layer in self.includes.layers if not is_fallback[layer.label] for key in layer.config}
        asked_for |= {key for config in (self.env_file.config, self.initial) for key in config}
        held = {key for layer in self.includes.layers if is_fallback[layer.label] for key in layer.config}
        last = held - asked_for
        return {key: merged[key] for key in sorted(merged, key=lambda key: key in last)}

    def _below_command_line(self) -> list[DictConfig]:
        return [
            OmegaConf.create({}),
            *(layer.config for layer in self.includes.layers),
            self.env_file.config,
            self.initial,
        ]

    def _origins_of_files(self) -> Origins:
        origins = Origins()
        for layer in self.includes.layers:
            origins.lay(plain(layer.config), layer.label)
        return origins


def gather(sources: Sources) -> Layers:
    """Read every layer; what can't be read is among the problems."""
    problems = list(sources.overrides.problems)
    initial = OmegaConf.create(plain(sources.initial) if sources.initial is not None else {})
    env_file = Layer(ENV_FILE_NAME, OmegaConf.create({}))
    includes = Includes()
    try:
        if sources.reads_env_file:
            env_file = _env_file(sources.dotenv_path)
        given = OmegaConf.merge(env_file.config, initial, sources.overrides.config)
        includes = load_includes([*sources.fallback_config_paths, *_config_paths(given)])
    except ConfigError as error:
        problems.append(error)
    problems += includes.problems
    return Layers(includes, env_file, initial, sources.overrides, problems, sources.fallback_config_paths)


def plain(config: DictConfig | Any) -> dict[str, Any]:
    """A config as plain data, `${…}` as written."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))


def _env_file(named: Path | None) -> Layer:
    path = Path(named) if named is not None else resolve_under_roots(ENV_FILE_NAME)
    label = _shown(path)
    mapping = load_yaml_mapping(path, label) if path.exists() else {}
    return Layer(label, as_config(mapping, label))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _config_paths(given: Any) -> list[str]:
    try:
        value = given.get(CONFIG_PATHS_KEY_NAME)
        paths = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException as error:
        raise interpolation_error(error) from error
    return paths_in({CONFIG_PATHS_KEY_NAME: paths}, "what was given")


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
