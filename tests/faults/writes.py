"""A collector that dies at its n-th write, for n = 1, 2, 3 … until it lives: in mid-line, and after it."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator

from tests.faults.books import Books, misplaced_offsets
from tests.faults.collector import DIE_AT_ENV
from tests.faults.scene import REPEATS, TASKS, Scene
from tests.faults.trial import END_SECONDS, Outcome

_MOST_WRITES = 200


def until_complete(scene: Scene) -> Iterator[Outcome]:
    """Two runs, torn and whole, for every n; the servers are the same all along."""
    with scene.prepared():
        servers = scene.serve()
        if not servers.says("servers ready!"):
            yield Outcome("n-th-write", problems=[f"the servers were not ready: {servers.text[-1500:]}"])
            return
        scene.note_ports()
        for number in range(1, _MOST_WRITES):
            lived = True
            for how in ("torn", "whole"):
                outcome, survived = _die_and_resume(scene, number, how)
                lived = lived and survived
                yield outcome
            if lived:
                break
        ending = Outcome("n-th-write-servers")
        code = scene.stop(servers)
        if code != 0:
            ending.problems.append(f"the servers ended with {code}")
        ending.problems += scene.leftovers()
        yield ending


def _die_and_resume(scene: Scene, number: int, how: str) -> tuple[Outcome, bool]:
    """The outcome, and whether there was no n-th write to die at."""
    outcome = Outcome(f"n-th-write-{number:02}-{how}")
    started = time.monotonic()
    shutil.rmtree(scene.output.parent)
    scene.output.parent.mkdir()
    (scene.points / "effects.jsonl").unlink(missing_ok=True)
    code = scene.collect(**{DIE_AT_ENV: f"{number}:{how}"}).ended(END_SECONDS)
    outcome.seen.append(f"ended with {code}, {scene.measured()} measured")
    if code not in (0, -signal.SIGKILL):
        outcome.problems.append(f"it ended with {code}: {scene.commands[-1].text[-1500:]}")
    resumed = scene.collect("--resume")
    if (again := resumed.ended(END_SECONDS)) != 0:
        outcome.problems.append(f"the resumed run ended with {again}: {resumed.text[-1500:]}")
    outcome.problems += _doubts(scene)
    outcome.seconds = time.monotonic() - started
    return outcome, code == 0


def _doubts(scene: Scene) -> list[str]:
    try:
        books = scene.books()
    except ValueError as error:
        return [f"the books can't be read: {error}"]
    wanted = Counter({(task, repeat): 1 for task in range(TASKS) for repeat in range(REPEATS)})
    wrong = [] if books.keys == wanted else [f"measured {sorted(books.keys.elements())}"]
    return [*wrong, *books.check(), *misplaced_offsets(scene.output), *scene.hidden_files(), *_extra_tries(books)]


def _extra_tries(books: Books) -> Iterator[str]:
    for key, tries in books.tries.items():
        if tries.dispatched > 2 or tries.retried:
            yield f"{key} was dispatched {tries.dispatched} times, with {tries.retried} retries in place"
