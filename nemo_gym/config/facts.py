"""What lists and searches need to know of each config file, kept between commands for as long as the files stay as
they are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from nemo_gym.config.replacing import replacing
from nemo_gym.config.roots import component_search_roots, resolve_under_roots

MANIFEST_FILE_NAME = "manifest.yaml"
_FORMAT = 1
_SETTLED_NS = 2 * 10**9
"""A file changed less than this ago may change again without its time showing it."""

Stamp: TypeAlias = list[int]


@dataclass(frozen=True)
class Facts:
    """What one YAML file says. `domain` and `description` may come from what it includes.

    `agent_datasets` are the types of the data sets that agents declare; `agents` says of each agent's block whether it
    is `bound` to a resources server, whether it is one of its `own` tools, and its `description`; `manifest` is a
    manifest's own text.
    """

    is_readable: bool = False
    server_types: tuple[str, ...] = ()
    benchmarks: int = 0
    agent_datasets: tuple[str, ...] = ()
    agents: tuple[Mapping[str, Any], ...] = ()
    domain: str | None = None
    description: str | None = None
    manifest: Mapping[str, Any] | None = None


class FactStore:
    """Facts by file. Reads a file once, and never when an earlier command has read it as it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, dict[str, Any]] = _stored(path)
        self._checked: dict[str, tuple[Stamp, Facts]] = {}
        self._is_new = False

    def of(self, path: Path) -> Facts:
        """The facts of a file; those of an unreadable one say so."""
        stamp, key = _stamp(path), str(path)
        known = self._checked.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        row = self._rows.get(key)
        if row is None or row["stamp"] != stamp or any(_current(name) != was for name, was in row["includes"].items()):
            row = self._learn(path, stamp)
        facts = Facts(**row["facts"])
        self._checked[key] = (stamp, facts)
        return facts

    def keep(self) -> None:
        """Write what was learned, where that is possible; files that changed just now are read again next time."""
        if not self._is_new:
            return
        now = time.time_ns()
        rows = {
            key: row
            for key, row in self._rows.items()
            if Path(key).exists() and all(now - stamp[0] > _SETTLED_NS for stamp in _stamps(row))
        }
        with contextlib.suppress(OSError, TypeError, ValueError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(self._path, mode=0o600, durable=False) as file:
                file.write(json.dumps(rows))
        self._is_new = False

    def _learn(self, path: Path, stamp: Stamp) -> dict[str, Any]:
        from nemo_gym.config.metadata import facts_of, included_files

        row = {
            "stamp": stamp,
            "includes": {name: _current(name) for name in included_files(path)},
            "facts": asdict(facts_of(path)),
        }
        self._rows[str(path)] = row
        self._is_new = True
        return row


@contextmanager
def kept_facts() -> Iterator[FactStore]:
    """The facts of the files below the search roots of now."""
    store = _store(_cache_file())
    try:
        yield store
    finally:
        store.keep()


@cache
def _store(path: Path) -> FactStore:
    return FactStore(path)


def _cache_file() -> Path:
    roots = "\n".join(str(root) for root in component_search_roots())
    digest = hashlib.sha256(f"{_FORMAT}\n{roots}".encode()).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "nemo-gym" / f"catalog-{digest}.json"


def _stored(path: Path) -> dict[str, dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return rows if isinstance(rows, dict) else {}


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return [0, -1]
    return [status.st_mtime_ns, status.st_size]


def _current(name: str) -> list[Any]:
    """Which file an include means now, and its stamp."""
    path = resolve_under_roots(name)
    return [str(path), *_stamp(path)]


def _stamps(row: Mapping[str, Any]) -> list[Stamp]:
    return [row["stamp"], *(was[1:] for was in row["includes"].values())]
