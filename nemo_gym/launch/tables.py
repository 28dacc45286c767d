"""Asking the processes of a run what they are doing: those that serve, and those that collect."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nemo_gym.serve.control_socket import NoAnswerError, RefusedError, ask

_ASKED_AT_ONCE = 32
_SUFFIX = ".sock"

Told = Mapping[int, "dict[str, Any] | None"]
"""What each process answered, by pid; None when it was there and said nothing in time."""


def ask_all(folder: Path, op: str, *, seconds: float, **arguments: Any) -> Told:
    """What every process with a socket in a folder answers, all asked at once. Sockets of dead ones are removed."""
    pids = [int(path.stem) for path in _sockets(folder)]
    if not pids:
        return {}
    with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(pids))) as pool:
        answers = pool.map(lambda pid: _ask(folder, pid, op, seconds, arguments), pids)
        return {pid: answer for pid, (is_there, answer) in zip(pids, answers, strict=True) if is_there}


def ask_one(folder: Path, pid: int, op: str, *, seconds: float, **arguments: Any) -> dict[str, Any] | None:
    """What one of them answers; None when it says nothing in time or isn't there."""
    answer: dict[str, Any] | None = _ask(folder, pid, op, seconds, arguments)[1]
    return answer


def _sockets(folder: Path) -> Sequence[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and path.stem.isdigit())
    except OSError:
        return []


def _ask(folder: Path, pid: int, op: str, seconds: float, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether the process is there, and its answer."""
    name = f"{pid}{_SUFFIX}"
    try:
        return True, ask(folder, name, op, seconds=seconds, **arguments)
    except NoAnswerError as error:
        if not error.is_listening:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        return error.is_listening, None
    except RefusedError:
        return True, None
