"""Whether an event loop still turns, as others see it."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.serve.in_flight import ROLLOUT_HEADER, InFlightMiddleware, ServerTable
from nemo_gym.serve.pulse import Pulse, read_held, read_pulse
from tests.unit.serve.toys import call_app


class Watched:
    """A pulse of the running loop, whose looks from another thread, and time, are the test's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 100.0
        self.pulse = Pulse(folder, clock=lambda: self.now)

    @property
    def moment(self) -> float | None:
        return read_pulse(self.folder / f"{os.getpid()}.pulse")

    def look_at(self, moment: float) -> None:
        self.now = moment
        looking = threading.Thread(target=self.pulse.look)
        looking.start()
        looking.join()


@pytest.fixture
async def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def answered(work: Callable[[], Awaitable[None]]) -> None:
    """A request of rollout 5-0, in the middle of which something is done."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await work()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    server = InFlightMiddleware(app, server=ServerTable("shop", int, lambda: 0.0))
    assert (await call_app(server, "/verify", headers={ROLLOUT_HEADER.lower(): "5-0"}))[0] == 200


async def test_a_loop_that_is_held_says_by_what(watched: Watched, tmp_path: Path) -> None:
    async def hold() -> None:
        for moment in (101.0, 102.0, 103.0, 104.5):
            watched.look_at(moment)

    await asyncio.create_task(answered(hold))
    assert watched.moment == 101.0, "from then on it was seen at the same step of the same task"
    held = read_held(tmp_path, os.getpid())
    assert held is not None and (held.server, held.path, held.rollout) == ("shop", "/verify", "5-0")
    assert held.at.startswith(f"{__file__}:") and held.shown == f"by /verify of shop, at {held.at}"

    async def later() -> None:
        watched.look_at(105.0)

    await asyncio.create_task(later())
    assert watched.moment == 105.0 and read_held(tmp_path, os.getpid()) is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task's context can be had from Python 3.12 on")
async def test_a_task_that_a_request_began_is_the_request_s(watched: Watched, tmp_path: Path) -> None:
    async def hold() -> None:
        for moment in (101.0, 105.0):
            watched.look_at(moment)

    async def begin() -> None:
        await asyncio.gather(asyncio.create_task(hold()))

    await answered(begin)
    held = read_held(tmp_path, os.getpid())
    assert held is not None and held.rollout == "5-0"


async def test_many_pieces_of_work_in_one_turn_are_no_standstill(watched: Watched, tmp_path: Path) -> None:
    """A CPU-heavy server gets from one to the next, though its timers wait for all of them."""

    async def piece(number: int) -> None:
        for second in range(3):
            watched.look_at(101.0 + 3 * number + second)

    await asyncio.gather(*map(piece, range(40)))
    assert watched.moment == 101.0 + 3 * 39
    assert read_held(tmp_path, os.getpid()) is None


async def test_an_idle_loop_beats(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.serve.pulse.BEAT_SECONDS", 0.001)
    assert watched.moment is None, "not begun"
    watched.pulse.start()
    watched.pulse.stop()  # the thread, which isn't meant here
    async with asyncio.timeout(20):
        for watched.now in (200.0, 300.0):
            while watched.moment != watched.now:
                await asyncio.sleep(0)
    assert (watched.folder / f"{os.getpid()}.pulse").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "9.held").write_text('{"at": "x", "nonsense": 1}')
    (tmp_path / "9.pulse").write_bytes(b"12")
    assert read_held(tmp_path, 9) is None and read_held(tmp_path, 8) is None
    assert read_pulse(tmp_path / "9.pulse") is None and read_pulse(tmp_path / "8.pulse") is None


async def test_a_full_disk_is_noticed_at_once_or_not_at_all(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written to a full disk through a mapping of a file ends the process."""
    watched.look_at(101.0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    watched.pulse.start()
    watched.pulse.stop()
    with pytest.raises(OSError, match="No space left"):
        Pulse(tmp_path)
