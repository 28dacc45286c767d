"""`_inherit_from`, `_copy` and `_delete_key`: one part of the config made from another.

Sources are read as they were before any directive acted, with the directives inside them carried out first. What is
inherited moves, what is copied stays.
"""

from __future__ import annotations

import copy
import re
from typing import Any, cast

from omegaconf import OmegaConf

from nemo_gym.config.environment_servers import follow_heirs
from nemo_gym.config.errors import ConfigError, InheritPathNotFoundError, raise_problems
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import (
    COPY_KEY_NAME,
    DELETE_KEY_KEY_NAME,
    INHERIT_FROM_KEY_NAME,
    MISSING,
)
from nemo_gym.config.origins import Origins, dotted

_DIRECTIVE_TEXT = re.compile(r"\$\{\s*(inherit_from|copy)\s*:\s*([^}]+?)\s*\}")

Path = tuple[Any, ...]


def register_directive_resolvers() -> None:
    """Let `${inherit_from:…}` and `${copy:…}` survive OmegaConf's own resolving as they are."""
    for name in ("inherit_from", "copy"):
        if not OmegaConf.has_resolver(name):
            OmegaConf.register_new_resolver(name, _text_of(name))


def _text_of(name: str) -> Any:
    return lambda path: f"${{{name}:{path}}}"


def carry_out_directives(config: dict[str, Any], origins: Origins | None = None) -> dict[str, Any]:
    """A new config without directives.

    Raises, all at once, an InheritPathNotFoundError per source that doesn't exist and a ConfigError per cycle and per
    `_delete_key` that finds nothing to delete; AmbiguousAgentRenameError when an inherited-away agent is still named.
    """
    swap = _Swap(config, origins or Origins())
    result = swap.run()
    raise_problems(swap.problems)
    follow_heirs(result, swap.heirs)
    return result


class _Swap:
    def __init__(self, config: dict[str, Any], origins: Origins) -> None:
        self.snapshot = copy.deepcopy(config)
        self.origins = origins
        self.problems: list[ConfigError] = []
        self.moved: dict[str, None] = {}
        self.heirs: dict[str, list[str]] = {}
        self._active: list[Path] = []
        self._done: dict[Path, Any] = {}

    def run(self) -> dict[str, Any]:
        result = {key: self._at((key,), value) for key, value in self.snapshot.items()}
        for source in self.moved:
            self._remove(result, source.split("."))
        return result

    def _at(self, path: Path, value: Any) -> Any:
        """The value at a place with all directives in and below it carried out."""
        if path in self._done:
            return copy.deepcopy(self._done[path])
        if path in self._active:
            cycle = [*self._active[self._active.index(path) :], path]
            self.problems.append(ConfigError(f"Circular _inherit_from or _copy: {' → '.join(map(dotted, cycle))}."))
            return {}
        self._active.append(path)
        self._done[path] = self._carried_out(path, value)
        self._active.pop()
        return copy.deepcopy(self._done[path])

    def _carried_out(self, path: Path, value: Any) -> Any:
        if isinstance(value, str) and (directive := _DIRECTIVE_TEXT.fullmatch(value)):
            return self._source(path, directive[2], written_at=path, moves=directive[1] == "inherit_from")
        if isinstance(value, dict):
            return self._mapping(path, value)
        if isinstance(value, list):
            return [self._item((*path, index), item) for index, item in enumerate(value)]
        return value

    def _item(self, path: Path, item: Any) -> Any:
        """An element of a list is never replaced itself, only what is inside it."""
        if isinstance(item, dict):
            return {key: self._at((*path, key), value) for key, value in item.items()}
        if isinstance(item, list):
            return [self._item((*path, index), inner) for index, inner in enumerate(item)]
        return item

    def _mapping(self, path: Path, mapping: dict[Any, Any]) -> Any:
        doomed = [key.strip() for key in str(mapping.get(DELETE_KEY_KEY_NAME) or "").split(",") if key.strip()]
        own = {key: value for key, value in mapping.items() if key not in (*_DIRECTIVE_KEYS, *doomed)}
        rest = {key: self._at((*path, key), value) for key, value in own.items()}
        sources = [(key, str(mapping[key])) for key in (INHERIT_FROM_KEY_NAME, COPY_KEY_NAME) if mapping.get(key)]
        if not sources:
            self._check_deleted(path, [key for key in doomed if key not in mapping], {})
            return rest
        taken = [
            self._source(path, name, written_at=(*path, key), moves=key == INHERIT_FROM_KEY_NAME)
            for key, name in sources
        ]
        source = taken[0] if len(taken) == 1 else _merged(*taken)
        if source == MISSING:
            return MISSING
        remaining = [key for key in doomed if key not in mapping]
        self._check_deleted(path, remaining, source)
        merged = _merged(source, rest)
        for key in remaining:
            if isinstance(merged, dict):
                merged.pop(key, None)
                self.origins.drop((*path, key))
        return merged

    def _source(self, path: Path, name: str, *, written_at: Path, moves: bool) -> Any:
        keys = tuple(name.split("."))
        found = self._look_up(path, keys)
        if found is _ABSENT:
            self.problems.append(self._not_found(path, name))
            return {}
        self.origins.drop(written_at)
        self.origins.graft(path, self.origins.subtree(keys))
        if moves:
            self.moved[name] = None
            if len(keys) == 1 and len(path) == 1:
                self.heirs.setdefault(name, []).append(str(path[0]))
        return found

    def _look_up(self, path: Path, keys: Path) -> Any:
        """The source's value; `???` when that is what it, or something above it, is."""
        node: Any = self.snapshot
        here: Path = ()
        carried_out = False
        for depth, key in enumerate(keys, start=1):
            actual = _existing_key(node, key)
            if actual is _ABSENT:
                return _ABSENT
            here, node = (*here, actual), node[actual]
            holds_the_user = depth < len(keys) and path[: len(here)] == here
            if not carried_out and not holds_the_user:
                node, carried_out = self._at(here, node), True
            if node == MISSING:
                return MISSING
        return node

    def _not_found(self, path: Path, name: str) -> ConfigError:
        origin = self.origins.of(path)
        by = f" ({origin})" if origin else ""
        parent, _, _ = name.rpartition(".")
        siblings = self._look_up(path, tuple(parent.split("."))) if parent else self.snapshot
        known = [f"{parent}.{key}" if parent else str(key) for key in siblings] if isinstance(siblings, dict) else []
        return InheritPathNotFoundError(
            f"{dotted(path)}{by} takes over `{name}`, which the config doesn't define.{did_you_mean(name, known)}"
        )

    def _check_deleted(self, path: Path, keys: list[str], source: Any) -> None:
        for key in keys:
            if not isinstance(source, dict) or key not in source:
                known = list(source) if isinstance(source, dict) else []
                self.problems.append(
                    ConfigError(
                        f"{dotted((*path, DELETE_KEY_KEY_NAME))} names `{key}`, which isn't there."
                        f"{did_you_mean(key, map(str, known))}"
                    )
                )

    def _remove(self, result: dict[str, Any], keys: list[str]) -> None:
        node: Any = result
        for key in keys[:-1]:
            actual = _existing_key(node, key)
            if actual is _ABSENT:
                return
            node = node[actual]
        last = _existing_key(node, keys[-1])
        if last is not _ABSENT and isinstance(node, dict):
            del node[last]
            self.origins.drop(keys)


_ABSENT = object()
_DIRECTIVE_KEYS = (INHERIT_FROM_KEY_NAME, COPY_KEY_NAME, DELETE_KEY_KEY_NAME)


def _existing_key(node: Any, key: Any) -> Any:
    """The key as the container has it: a number in a dotted path may be a list index or a number for a key."""
    if isinstance(node, list):
        return int(key) if str(key).isdigit() and int(key) < len(node) else _ABSENT
    if not isinstance(node, dict):
        return _ABSENT
    if key in node:
        return key
    return int(key) if str(key).isdigit() and int(key) in node else _ABSENT


def _merged(source: Any, rest: Any) -> Any:
    if not isinstance(source, dict) or not isinstance(rest, dict):
        return rest or source
    merged = OmegaConf.merge(OmegaConf.create(source), OmegaConf.create(rest))
    return cast(dict[Any, Any], OmegaConf.to_container(merged, resolve=False))
