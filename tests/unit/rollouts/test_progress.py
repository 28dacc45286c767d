"""The live line of a collection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nemo_gym.rollouts import progress as progress_module
from nemo_gym.rollouts.progress import CollectionProgress
from tests.unit.rollouts.fakes import Row, collect, collection_config, right, task


async def test_the_line_is_fresh_though_nothing_has_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every half minute in a log, by what holds at that moment."""
    looks: asyncio.Queue[float] = asyncio.Queue()
    inside = 0

    async def pause(seconds: float) -> None:
        looks.put_nowait(seconds)
        await allowed.acquire()

    allowed = asyncio.Semaphore(0)
    with CollectionProgress(total=9, done=0) as progress:
        progress.show(lambda: f"in flight={inside}" if inside else "")
        monkeypatch.setattr(progress._bar, "mininterval", 0.0)
        capsys.readouterr()
        async with progress.kept_fresh(pause):
            assert await looks.get() == 30.0
            for inside in (4, 7):  # noqa: B007 - the line says it
                allowed.release()
                await looks.get()
        allowed.release()
        await asyncio.sleep(0)
        lines = [line for line in capsys.readouterr().err.splitlines() if "in flight" in line]
    assert [line.partition("in flight=")[2].rstrip("]") for line in lines] == ["4", "7"]


async def test_a_collection_keeps_its_line_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LINES_OF_A_LOG", 0.0)
    done = asyncio.Event()

    async def answer(row: Row) -> Row:
        await done.wait()
        return right(row)

    config = collection_config(tmp_path, [task("a"), task("b")], agent_name="math_agent", num_samples_in_parallel=2)
    running = asyncio.create_task(collect(config, answer))
    shown = ""
    async with asyncio.timeout(30):
        while "in flight=2/2" not in shown:
            await asyncio.sleep(0)
            shown += capsys.readouterr().err
    done.set()
    await running
    assert "0/2" in shown.partition("in flight=2/2")[0].splitlines()[-1]
