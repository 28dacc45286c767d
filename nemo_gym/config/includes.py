"""The config files a run names, and the files those name in turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config.aliases import LEGACY_CONFIG_PATH_ALIASES
from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError, MalformedConfigPathsError
from nemo_gym.config.hints import closest
from nemo_gym.config.keys import CONFIG_PATHS_KEY_NAME
from nemo_gym.config.notices import warn
from nemo_gym.config.roots import component_search_roots, resolve_under_roots
from nemo_gym.config.yaml_files import load_yaml_mapping


@dataclass(frozen=True)
class Layer:
    """One config file: the path it was named by and what it holds."""

    label: str
    config: DictConfig


@dataclass
class Includes:
    """Every file by name, and their layers from the weakest to the strongest."""

    paths: list[str] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    problems: list[ConfigError] = field(default_factory=list)


def load_includes(config_paths: Iterable[str]) -> Includes:
    """Load the named files and everything they include.

    A file is loaded once per spelling of its path. An includer overrides all it pulled in; of siblings the later one,
    with its whole subtree, overrides the earlier.
    """
    result = Includes()
    named = list(config_paths)
    result.paths = list(dict.fromkeys(named))
    repeated = [path for index, path in enumerate(named) if path in named[:index]]
    loaded: dict[str, Layer] = {}
    children: dict[str, list[str]] = {}
    roots = list(result.paths)
    for path in result.paths:  # grows while it is walked
        try:
            loaded[path] = _load(path)
            included = paths_in(OmegaConf.to_container(loaded[path].config, resolve=False), path)
        except ConfigError as error:
            result.problems.append(error)
            continue
        children[path] = [child for child in dict.fromkeys(included) if child not in result.paths]
        repeated += [child for child in included if child not in children[path]]
        result.paths += children[path]
    _report_repeated(repeated)
    result.layers = [loaded[path] for root in roots for path in _post_order(root, children) if path in loaded]
    return result


def paths_in(config: Any, where: str) -> list[str]:
    """The `config_paths` of plain data, checked; `where` says what holds them."""
    value = config.get(CONFIG_PATHS_KEY_NAME) if isinstance(config, dict) else None
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(path, str) for path in value):
        return value
    raise MalformedConfigPathsError(
        f"{CONFIG_PATHS_KEY_NAME} in {where} must be a list of file names, not {value!r}: "
        f"write `{CONFIG_PATHS_KEY_NAME}: [a.yaml, b.yaml]`, on the command line '+{CONFIG_PATHS_KEY_NAME}=[a.yaml]'."
    )


def as_config(mapping: dict[Any, Any], label: str) -> DictConfig:
    """Plain data as a config.

    Raises ConfigError naming the file when it holds what no config can, like an unfinished `${`.
    """
    try:
        return OmegaConf.create(mapping)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None)
        place = f" at `{key}`" if key else ""
        raise ConfigError(f"{label}{place}: {str(error).splitlines()[0].rstrip('.')}.") from error


def _load(path: str) -> Layer:
    return Layer(path, as_config(load_yaml_mapping(_locate(path), path), path))


def _locate(path: str) -> Path:
    found = resolve_under_roots(path)
    if found.exists():
        return found
    canonical = LEGACY_CONFIG_PATH_ALIASES.get(path)
    if canonical is not None and resolve_under_roots(canonical).exists():
        warn(f"the config {path} is now {canonical}: use that path.")
        return resolve_under_roots(canonical)
    raise _not_found(path)


def _not_found(path: str) -> ConfigPathNotFoundError:
    tried = [Path(path)] if Path(path).is_absolute() else [root / path for root in component_search_roots()]
    suggestion = _nearest_existing(path)
    hint = f" Did you mean `{suggestion}`?" if suggestion else ""
    return ConfigPathNotFoundError(f"There is no config file {path}.{hint} Looked for: {', '.join(map(str, tried))}.")


def _nearest_existing(path: str) -> str | None:
    """The path with its first unknown part replaced by the closest name there is, if that makes it exist."""
    parts = Path(path).parts
    for root in [Path(parts[0])] if Path(path).is_absolute() else component_search_roots():
        folder = root
        for depth, part in enumerate(parts):
            if not (folder / part).exists():
                names = [child.name for child in folder.iterdir()] if folder.is_dir() else []
                name = _closest_name(part, names)
                candidate = Path(*parts[:depth], name, *parts[depth + 1 :]) if name else None
                if candidate is not None and (root / candidate).is_file():
                    return str(candidate)
                break
            folder = folder / part
    return None


def _closest_name(part: str, names: list[str]) -> str | None:
    """The name most like `part`, endings left out of the comparison since they make all files alike."""
    by_stem = {Path(name).stem: name for name in names if Path(name).suffix == Path(part).suffix}
    stem = closest(Path(part).stem, by_stem, cutoff=0.7)
    return by_stem[stem] if stem else None


def _post_order(path: str, children: dict[str, list[str]]) -> Iterable[str]:
    for child in children.get(path, ()):
        yield from _post_order(child, children)
    yield path


def _report_repeated(repeated: list[str]) -> None:
    if repeated:
        names = ", ".join(dict.fromkeys(repeated))
        warn(
            f"named more than once in {CONFIG_PATHS_KEY_NAME}, loaded once: {names} (for a variant use _inherit_from)."
        )
