"""Reading YAML files the way OmegaConf does, only faster and with errors that name the place."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.config.errors import ConfigError

if TYPE_CHECKING:
    import yaml


def load_yaml_mapping(path: Path, shown_as: str | None = None) -> dict[Any, Any]:
    """The mapping a YAML file holds; an empty file is an empty one. Callers must not change it.

    Raises ConfigError naming file, line and column.
    """
    name = shown_as or str(path)
    try:
        status = path.stat()
        value = _parse(str(path), status.st_mtime_ns, status.st_size, name)
    except OSError as error:
        raise ConfigError(f"{name} can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must hold a mapping (`key: value` lines), not a {type(value).__name__}.")
    return value


@lru_cache(maxsize=4096)
def _parse(path: str, _modified: int, _size: int, name: str) -> Any:
    import yaml

    text = Path(path).read_text(encoding="utf-8")
    try:
        return yaml.load(text, Loader=_loader_class())
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_message(name, error)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not valid YAML: {error}.") from error


def _syntax_message(name: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    return f"{place}: not valid YAML: {error.problem or error.context}."


# What YAML 1.2 calls a float and YAML 1.1 doesn't: 1e3.
_FLOAT = re.compile(
    r"""^(?:
     [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.X,
)


@lru_cache(maxsize=1)
def _loader_class() -> Any:
    """A safe loader in C where there is one: dates stay text, `1e3` is a number, a key given twice is an error."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float"))]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            _refuse_duplicates(node)
            return super().construct_mapping(node, deep=deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
    return Loader


def _refuse_duplicates(node: yaml.MappingNode) -> None:
    from yaml.constructor import ConstructorError

    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag != "tag:yaml.org,2002:str":
            continue
        if key.value in seen:
            raise ConstructorError(None, None, f"the key `{key.value}` is given twice", key.start_mark)
        seen.add(key.value)
