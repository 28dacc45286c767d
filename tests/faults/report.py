"""The dated report: every cell by name, how it ended, how long it took, and on what machine."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.faults.cells import impossible
from tests.faults.scene import IN_FLIGHT, REPEATS, ROLLOUT_SECONDS, SPINUP_SECONDS, STAGE_SECONDS, TASKS
from tests.faults.trial import Outcome

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reports"
_LONGEST = 600


def write(outcomes: Iterable[Outcome], facts: Mapping[str, Any], *, is_whole: bool) -> Path:
    """The report's file; a run of chosen cells gets one of its own name."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = FOLDER / f"{today}-kill-matrix{'' if is_whole else '-part'}.md"
    path.write_text("\n".join(_lines(list(outcomes), facts, today)) + "\n", encoding="utf-8")
    return path


def _lines(outcomes: list[Outcome], facts: Mapping[str, Any], today: str) -> Iterator[str]:
    failed = [outcome for outcome in outcomes if outcome.problems]
    skipped = [outcome for outcome in outcomes if outcome.skipped]
    yield f"# Kill matrix, {today}\n"
    yield (
        f"`python -m tests.faults`: {len(outcomes)} cells, {len(failed)} failed, {len(skipped)} skipped, "
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s.\n"
    )
    yield f"Machine: {', '.join(f'{name} {value}' for name, value in facts.items())}.\n"
    yield from _how()
    yield "\n| cell | outcome | seconds | what was seen |\n|---|---|--:|---|"
    for outcome in outcomes:
        seen = "; ".join([*outcome.seen, *([outcome.skipped] if outcome.skipped else [])])
        yield f"| {outcome.name} | {outcome.verdict} | {outcome.seconds:.1f} | {_cell(seen)} |"
    if failed:
        yield "\n## What failed\n"
        for outcome in failed:
            for problem in outcome.problems:
                yield f"- **{outcome.name}**: {_cell(problem)}"
    yield "\n## Cells that can't exist\n"
    for cell, reason in impossible().items():
        yield f"- {cell.name}: {reason}"


def _how() -> Iterator[str]:
    yield from (
        f"Each cell runs {TASKS} tasks × {REPEATS} repeats, {IN_FLIGHT} in flight, each a tool call and an answer.",
        f"Every stage may take {STAGE_SECONDS} s, a rollout {ROLLOUT_SECONDS} s, a start {SPINUP_SECONDS} s.",
        "",
        "- Processes are real; at the moment named they are held by files until the fault is done.",
        "- `run` is `gym eval run`, `collector` is `gym eval run --no-serve`, `launcher` is `gym env start`. The other",
        "  victims are processes of `gym eval run`: one each (`placement: process`), or two shards (`shard`).",
        "- A socket reset disconnects the victim's own TCP connections (`pidfd_getfd`, `connect` to AF_UNSPEC); of",
        "  launcher and zygote it shuts down the socket between the two.",
        "- A full disk is a tmpfs of 2 MiB with no room left: under the results for collector and run, under the run's",
        "  folder with the servers' logs for the others.",
        "- STOP lasts 4 s for collector and run, until everybody else has ended for the launcher, for good otherwise.",
        "",
        "After each cell no process, listening port, run folder or temporary file is left within 10 s, and then:",
        "",
        "- `--resume` completes, with the exit code and the coverage line of an undisturbed run;",
        "- every (task, repeat) is measured once, and each journal entry's offset finds its record;",
        "- an attempt's number equals the failures on file before it, and none is there twice;",
        "- the tool ran no more often than the rollout was sent, and once in the session that was measured;",
        "- nobody showed a traceback, and nothing hidden is left beside the results.",
    )


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"
