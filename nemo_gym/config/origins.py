"""Where each value of the config came from."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from nemo_gym.config.keys import MISSING

OriginTree: TypeAlias = "dict[Any, OriginTree] | str"
Path: TypeAlias = Sequence[Any]


class Origins:
    """For every leaf the file or override that set it last. Lists are leaves: they replace each other whole."""

    def __init__(self) -> None:
        self._tree: dict[Any, OriginTree] = {}

    def lay(self, layer: Mapping[Any, Any], label: str) -> None:
        """Lay a layer over what is there, by the rules of merging."""
        _lay(self._tree, layer, label)

    def lay_at(self, path: Path, value: object, label: str) -> None:
        """The same for one value at one place."""
        for key in reversed(path):
            value = {key: value}
        assert isinstance(value, Mapping)
        self.lay(value, label)

    def lay_over(self, other: Origins) -> None:
        """Lay everything another one knows over what is there."""
        _lay_tree(self._tree, other._tree)

    def of(self, path: Path) -> str | None:
        """Who set the value at a path, or the first leaf below it; None for what Gym added itself."""
        node: OriginTree = self._tree
        for key in path:
            if isinstance(node, str):
                return node
            if key not in node:
                return None
            node = node[key]
        while not isinstance(node, str):
            if not node:
                return None
            node = next(iter(node.values()))
        return node

    def graft(self, path: Path, subtree: OriginTree) -> None:
        """Put a copy of a subtree under what is known at a path: what is there already wins."""
        node = self._tree
        for key in path[:-1]:
            child = node.setdefault(key, {})
            if isinstance(child, str):
                return
            node = child
        merged: dict[Any, OriginTree] = {path[-1]: copy.deepcopy(subtree)}
        if path[-1] in node:
            _lay_tree(merged, {path[-1]: node[path[-1]]})
        node[path[-1]] = merged[path[-1]]

    def subtree(self, path: Path) -> OriginTree:
        """What is known at and below a path."""
        node: OriginTree = self._tree
        for key in path:
            if isinstance(node, str):
                return node
            node = node.get(key, {})
        return copy.deepcopy(node)

    def drop(self, path: Path) -> None:
        """Forget a path."""
        node: OriginTree = self._tree
        for key in path[:-1]:
            if isinstance(node, str) or key not in node:
                return
            node = node[key]
        if isinstance(node, dict):
            node.pop(path[-1], None)

    def rename(self, old: str, new: str) -> None:
        """A top-level key got another name."""
        if old in self._tree and old != new:
            self._tree[new] = self._tree.pop(old)

    def as_mapping(self) -> dict[Any, OriginTree]:
        """The config's shape with labels for values."""
        return copy.deepcopy(self._tree)


def dotted(path: Path) -> str:
    """`a.b[0].c` for the keys and indices of a path."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) and not isinstance(key, bool) else f".{key}" if text else str(key)
    return text


def leaves(value: Mapping[Any, Any], prefix: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Paths and values of whatever is no mapping."""
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from leaves(item, (*prefix, key))
        else:
            yield (*prefix, key), item


def _lay(tree: dict[Any, OriginTree], layer: Mapping[Any, Any], label: str) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and value:
            below = tree.get(key)
            if not isinstance(below, dict):
                below = tree[key] = {}
            _lay(below, value, label)
        elif not (value == MISSING and key in tree) and not (isinstance(value, Mapping) and key in tree):
            tree[key] = label


def _lay_tree(tree: dict[Any, OriginTree], over: dict[Any, OriginTree]) -> None:
    for key, value in over.items():
        below = tree.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _lay_tree(below, value)
        else:
            tree[key] = copy.deepcopy(value)
