"""Importing what every server imports, once, in a state that is safe to fork from."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from nemo_gym.launch.linux import thread_count


@dataclass(frozen=True)
class PreloadFacts:
    """What a fork of the fork server would find.

    `loaded` and `missed` are top-level module names: imported, and looked for in vain. A server whose venv provides one
    of either must not be a fork. `problem` says why nothing may be forked at all.
    """

    loaded: frozenset[str]
    missed: frozenset[str]
    problem: str | None = None

    def as_body(self) -> dict[str, Any]:
        return {**asdict(self), "loaded": sorted(self.loaded), "missed": sorted(self.missed)}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> PreloadFacts:
        return cls(frozenset(body["loaded"]), frozenset(body["missed"]), body["problem"])


class _MissRecorder:
    """The last meta-path finder: whatever reaches it exists nowhere."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        self.names.add(fullname.partition(".")[0])
        return None


def preload(room: str) -> PreloadFacts:
    """Have a room import what servers need, by its `preload()`, and freeze that in memory which forks share."""
    problem = None
    gc.disable()
    with _recorded_misses() as recorder:
        try:
            _preload_room(room)
        except Exception as error:
            problem = f"preloading failed ({type(error).__name__}: {error})"
    gc.collect()
    gc.freeze()
    if thread_count() != 1:
        problem = "preloading started a thread"
    loaded = frozenset(name for name in sys.modules if "." not in name)
    missed = frozenset(name for name in recorder.names if name not in sys.modules or _is_namespace(name))
    return PreloadFacts(loaded, missed, problem)


def _preload_room(room: str) -> None:
    own = getattr(importlib.import_module(room), "preload", None)
    if own is not None:
        own()


@contextmanager
def _recorded_misses() -> Iterator[_MissRecorder]:
    recorder = _MissRecorder()
    sys.meta_path.append(recorder)
    try:
        yield recorder
    finally:
        sys.meta_path.remove(recorder)


def _is_namespace(name: str) -> bool:
    return getattr(sys.modules[name], "__file__", None) is None
