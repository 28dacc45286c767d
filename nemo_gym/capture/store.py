"""The files captured model calls are kept in: one JSON exchange a line, one file a rollout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.capture.append import DurableAppender, Line
from nemo_gym.capture.exchange import without_payloads

MAX_ROLLOUT_BYTES = 256 << 20
"""A rollout's file takes payloads up to this size; later calls are recorded without them."""

_ROLLOUT_ID = re.compile(r"[A-Za-z0-9._-]+")

Mask = Callable[[bytes], bytes]


def _unmasked(line: bytes) -> bytes:
    return line


class CaptureStore:
    """Exchanges by rollout id, in `<root>/<rollout id>.capture.jsonl`; any process may add to a file.

    `mask` hides what must not be written of a line. Every method raises ValueError for a rollout id that has other
    characters than ASCII letters, digits and `._-`.
    """

    def __init__(self, root: str | Path, *, max_rollout_bytes: int = MAX_ROLLOUT_BYTES, mask: Mask = _unmasked) -> None:
        self._root = Path(root)
        self._mask = mask
        self._appender = DurableAppender(max_file_bytes=max_rollout_bytes)

    @property
    def root(self) -> Path:
        """The folder of all captures."""
        return self._root

    def path_for(self, rollout_id: str) -> Path:
        """The file of a rollout's exchanges."""
        return self._root / f"{_checked(rollout_id)}.capture.jsonl"

    def incomplete_path_for(self, rollout_id: str) -> Path:
        """The file whose existence says that calls of a rollout were lost."""
        return self._root / f"{_checked(rollout_id)}.capture.incomplete"

    def mark_incomplete(self, rollout_id: str) -> None:
        """Note that a call of the rollout could not be recorded."""
        path = self.incomplete_path_for(rollout_id)
        self._root.mkdir(parents=True, exist_ok=True)
        path.touch()

    def is_incomplete(self, rollout_id: str) -> bool:
        """Whether a call of the rollout is known to be missing."""
        return self.incomplete_path_for(rollout_id).exists()

    def record(self, rollout_id: str, exchange: dict[str, Any]) -> None:
        """Append an exchange; blocks until it is on disk. Raises OSError when it can't be written."""
        path = self.path_for(rollout_id)
        line = Line(self._line(exchange), lambda: self._line(without_payloads(exchange)))
        self._root.mkdir(parents=True, exist_ok=True)
        self._appender.append(path, line)

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """All exchanges of a rollout in the order they were recorded. Raises ValueError for a damaged line."""
        path = self.path_for(rollout_id)
        exchanges = []
        for index, line in _lines(path):
            exchange = _parsed(line)
            if exchange is None:
                raise ValueError(f"{path}, line {index + 1}: not a JSON object")
            exchanges.append(exchange)
        return exchanges

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """`([(line index from 0, exchange), …], number of damaged lines)`."""
        found = [(index, _parsed(line)) for index, line in _lines(self.path_for(rollout_id))]
        exchanges = [(index, exchange) for index, exchange in found if exchange is not None]
        return exchanges, len(found) - len(exchanges)

    def clear(self, rollout_id: str) -> None:
        """Forget what was recorded of a rollout."""
        for path in (self.path_for(rollout_id), self.incomplete_path_for(rollout_id)):
            path.unlink(missing_ok=True)

    def _line(self, exchange: dict[str, Any]) -> bytes:
        return self._mask(orjson.dumps(exchange, option=orjson.OPT_NON_STR_KEYS, default=str))


def _checked(rollout_id: str) -> str:
    if _ROLLOUT_ID.fullmatch(rollout_id) is None:
        raise ValueError(f"rollout id {rollout_id!r} must consist of ASCII letters, digits, '.', '_' and '-'")
    return rollout_id


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for index, line in enumerate(file):
            if line.strip():
                yield index, line


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        exchange = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return exchange if isinstance(exchange, dict) else None
