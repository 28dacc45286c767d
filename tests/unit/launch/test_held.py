"""Processes whose event loop is held: who is ended when, and who isn't."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nemo_gym.launch.control import Control
from nemo_gym.launch.fleet import Fleet
from nemo_gym.launch.held import HeldLimits, HeldWatch
from nemo_gym.launch.restarts import Reviver
from nemo_gym.launch.rounds import Rounds
from nemo_gym.serve.pulse import Held
from nemo_gym.serve.stages import METRICS, VERIFY

Until = Callable[[Callable[[], bool]], None]

VERIFYING = Held("app.py:5", "shop", "/verify", "5-0")
TYPES = {"shop": "resources_servers"}


@pytest.mark.parametrize(
    ("limits", "held", "seconds"),
    [
        (HeldLimits(), None, 300.0),
        (HeldLimits(), VERIFYING, 300.0),
        (HeldLimits(stages={VERIFY: 40.0}, server_types=TYPES), VERIFYING, 40.0),
        (HeldLimits(stages={VERIFY: 4.0}, server_types=TYPES), VERIFYING, 10.0),
        (HeldLimits(stages={VERIFY: 0.0}, server_types=TYPES), VERIFYING, 300.0),
        (HeldLimits(5.0, {VERIFY: 4.0}, TYPES), VERIFYING, 5.0),
        (HeldLimits(0.0, {VERIFY: 4.0}, TYPES), VERIFYING, 0.0),
        (HeldLimits(stages={METRICS: 3600.0}, server_types=TYPES), Held("x", "shop", "/aggregate_metrics"), 3600.0),
        (HeldLimits(stages={METRICS: 0.0}, server_types=TYPES), Held("x", "shop", "/aggregate_metrics"), 0.0),
    ],
)
def test_the_limit_is_that_of_the_stage_where_it_is_shorter(
    limits: HeldLimits, held: Held | None, seconds: float
) -> None:
    assert limits.of(held) == seconds


class Run:
    """The pulses of a run's processes, a watch over them, and whom it has given up."""

    def __init__(self, folder: Path, **options: float) -> None:
        self.tables = folder / "tables"
        self.tables.mkdir()
        self.now = 100.0
        self.letters: dict[int, str] = {}
        self.lost: list[tuple[int, float, Held | None]] = []
        self.watch = HeldWatch(
            folder,
            HeldLimits(20.0),
            lambda *told: self.lost.append(told),
            letter_of=lambda pid: self.letters.get(pid, "R"),
            clock=lambda: self.now,
        )

    def beat(self, pid: int, moment: float) -> None:
        (self.tables / f"{pid}.pulse").write_bytes(struct.pack("d", moment))

    def look_at(self, *moments: float) -> None:
        for self.now in moments:
            self.watch.look()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_standstill_is_told_once_with_what_it_is_held_by(run: Run) -> None:
    run.beat(9, 100.0)
    (run.tables / "9.held").write_text(json.dumps({"at": "app.py:5", "server": "shop", "path": "/verify"}))
    run.look_at(101.0, 103.0, 119.0)
    assert run.lost == []
    run.look_at(121.0, 123.0)
    assert run.lost == [(9, 21.0, Held("app.py:5", "shop", "/verify"))]


def test_a_watch_looks_by_itself_until_it_is_stopped_and_loses_nobody_afterwards(run: Run, until: Until) -> None:
    run.beat(9, 100.0)
    watch = HeldWatch(run.tables.parent, run.watch.limits, run.watch.lose, letter_of=lambda _: "R", clock=lambda: 200.0)
    watch._rounds = Rounds(watch.look, seconds=0.001, name="held")
    watch.start()
    until(lambda: run.lost == [(9, 100.0, None)])
    watch.stop()
    run.beat(9, 101.0)
    watch.look()
    watch.look()
    assert len(run.lost) == 1


def test_one_that_goes_on_is_kept_however_slow_it_is(run: Run) -> None:
    for moment in (100.0, 119.0, 138.0, 157.0):
        run.beat(9, moment)
        run.look_at(moment + 1, moment + 17)
    assert run.lost == []


def test_who_was_away_itself_looks_again_first(run: Run) -> None:
    run.beat(9, 100.0)
    run.look_at(1000.0)
    assert run.lost == []
    run.beat(9, 1001.0)
    run.look_at(1002.0, 1004.0)
    assert run.lost == []


@pytest.mark.parametrize("letter", ["T", "D"])
def test_what_is_stopped_or_waits_for_a_disk_is_not_at_work(run: Run, letter: str) -> None:
    run.beat(9, 100.0)
    run.letters[9] = letter
    run.look_at(121.0, 123.0, 125.0)
    run.letters[9] = "R"
    run.look_at(127.0)
    assert run.lost == []
    run.look_at(129.0)
    assert [pid for pid, _, _ in run.lost] == [9]


def test_of_the_dead_nothing_is_kept(run: Run) -> None:
    run.beat(9, 100.0)
    (run.tables / "9.held").touch()
    run.letters[9] = ""
    run.look_at(121.0, 123.0)
    assert run.lost == [] and list(run.tables.iterdir()) == []


@pytest.mark.parametrize(
    ("held", "advice", "is_charged"),
    [(VERIFYING, "An `async def` must not", True), (None, "as a regular expression", False)],
)
def test_whoever_is_ended_is_told_of_with_what_can_be_done(
    tmp_path: Path, held: Held | None, advice: str, is_charged: bool
) -> None:
    """Where nothing is known of it, code in C kept the whole interpreter."""
    told: list[tuple[Any, ...]] = []
    process = SimpleNamespace(pid=9, returncode=None, is_remote=False)
    fleet = SimpleNamespace(supervisor=SimpleNamespace(processes={"shop": process}))
    restart = lambda *words, is_charged: told.append((*words, is_charged))  # noqa: E731
    reviver = SimpleNamespace(is_watching=True, restart_held=restart)
    Control(tmp_path, cast(Fleet, fleet), cast(Reviver, reviver))._end_held(9, 12.0, held)
    ((ended, why, said, charged),) = told
    assert ended is process and why.startswith("had its event loop held for 12 s") and charged is is_charged
    assert advice in said
    assert said.endswith("+server_stuck_timeout_s=N allows N seconds.")
    assert (tmp_path / "charged.jsonl").exists() is is_charged
