"""When files are checked in several processes, and in how many."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from nemo_gym.health import engine
from nemo_gym.health.evaluation import Place
from nemo_gym.health.models import RolloutDigest

MANY, LARGE = 32_768, 128 << 20
CPUS = 6


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many processes were asked to check; nothing where none was. Nothing is checked."""
    asked: list[int] = []

    def check(chunks: Sequence[object], count: int, ignored: Collection[str]) -> list[RolloutDigest]:
        asked.append(count)
        return []

    monkeypatch.setattr(engine, "_in_processes", check)
    monkeypatch.setattr(engine, "evaluate_lines", lambda *_: [])
    monkeypatch.setattr(os, "cpu_count", lambda: CPUS)
    return asked


@pytest.mark.parametrize(
    ("records", "size", "workers", "asked"),
    [
        (MANY - 1, LARGE - 1, None, []),
        (MANY, 0, None, [CPUS]),
        (256, LARGE, None, [4]),
        (256, 0, None, []),
        (256, 0, 2, [2]),
        (256, 0, 8, [4]),
        (MANY, LARGE, 1, []),
        (MANY, LARGE, 16, [16]),
        (1, LARGE, None, []),
        (1, LARGE, 8, []),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_processes_are_started_where_there_is_much_or_where_they_are_asked_for(
    processes: list[int],
    records: int,
    size: int,
    workers: int | None,
    asked: list[int],
    files: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process gets 64 lines at least; several files count together."""
    paths = [tmp_path / f"{number}.jsonl" for number in range(files)]
    shares = [records - records // 2, records // 2] if files == 2 else [records]
    sizes = [size - size // 2, size // 2] if files == 2 else [size]
    for path, length in zip(paths, sizes, strict=True):
        path.touch()
        os.truncate(path, length)
    places: dict[Path, list[Place]] = {
        path: [(number, 0) for number in range(share)] for path, share in zip(paths, shares, strict=True)
    }
    monkeypatch.setattr(engine, "places_in", places.__getitem__)
    assert engine.evaluate_files(paths, workers, []) == []
    assert processes == asked
