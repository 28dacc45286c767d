"""`python -m tests.faults [--only CELL …] [--list]`: the kill matrix, told in docs/reports/<date>-kill-matrix.md."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.bench import machine
from tests.faults import report, writes
from tests.faults.cells import Cell, Victim, all_cells, chosen_cells, impossible
from tests.faults.scene import Scene
from tests.faults.trial import Outcome, Quiet, Trial, disk_of, quiet_run
from tests.mock_provider import MockProvider, Reply, Script, ToolCall

WRITES = "n-th-write"
SCRIPT = Script.of(Reply(tool_calls=(ToolCall("add", {}),)), Reply(text="Done."))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", action="append", metavar="CELL", help=f"a cell, a pattern, or {WRITES} (repeatable)")
    parser.add_argument("--list", action="store_true", help="name the cells, and those that can't exist, and end")
    parser.add_argument("--keep", action="store_true", help="keep the folders of cells that failed")
    parser.add_argument("--no-report", action="store_true", help="write no report")
    options = parser.parse_args()
    if options.list:
        _list()
        return 0
    names = options.only or ["*"]
    cells = _chosen(names)
    with_writes = any(fnmatch(WRITES, name) for name in names)
    facts = machine.facts()
    folder = Path(tempfile.mkdtemp(prefix="gym-faults-"))
    outcomes: list[Outcome] = []
    try:
        with MockProvider(SCRIPT) as provider:
            matrix = Matrix(folder, provider.base_url)
            for outcome in matrix.run(cells, with_writes):
                _tell(outcome)
                outcomes.append(outcome)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if options.keep:
        print(f"the folders are kept in {folder}")
    if not options.no_report:
        print(f"written to {report.write(outcomes, facts, is_whole=options.only is None)}")
    return 1 if any(outcome.problems for outcome in outcomes) else 0


class Matrix:
    """Cells one after the other, each in a folder of its own beside one copy of the tree."""

    def __init__(self, folder: Path, model_url: str) -> None:
        self._folder = folder
        self._model_url = model_url
        self._quiet: dict[bool, Quiet] = {}
        self._tree = shutil.copytree(Path(__file__).parent / "tree", folder / "tree")

    def run(self, cells: list[Cell], with_writes: bool) -> Iterator[Outcome]:
        for cell in cells:
            shared = cell.victim is Victim.SHARD
            if shared not in self._quiet:
                yield self._run_quietly(shared)
            if self._quiet[shared].code != 0:
                continue
            yield Trial(cell, self._scene(cell.name, disk_of(cell)), self._quiet[shared]).run()
        if with_writes:
            yield from writes.until_complete(self._scene(WRITES))

    def _run_quietly(self, shared: bool) -> Outcome:
        name = f"undisturbed-{'shared' if shared else 'process'}"
        self._quiet[shared], problems = quiet_run(self._scene(name), shared=shared)
        quiet = self._quiet[shared]
        seen = [f"{len(quiet.keys)} rollouts, {quiet.tool_calls} tool calls", *quiet.coverage]
        return Outcome(name, quiet.seconds, seen, problems)

    def _scene(self, name: str, disk_for: str | None = None) -> Scene:
        return Scene(self._folder / name, self._tree, self._model_url, disk_for)


def _chosen(names: list[str]) -> list[Cell]:
    """The cells of a whole run that match, else any of the matrix that does."""
    usual = [cell for cell in chosen_cells() if any(fnmatch(cell.name, name) for name in names)]
    ruled_out = impossible()
    asked = [cell for cell in all_cells() if cell.name in names and cell not in usual and cell not in ruled_out]
    return usual + asked


def _list() -> None:
    for cell in chosen_cells():
        print(cell.name)
    print(f"{WRITES} (n = 1, 2, 3 … until the run completes; torn and whole)")
    print("\nCan't exist:")
    for cell, reason in impossible().items():
        print(f"{cell.name}: {reason}")


def _tell(outcome: Outcome) -> None:
    print(f"{outcome.verdict:8}{outcome.seconds:6.1f} s  {outcome.name}: {'; '.join(outcome.seen)}", flush=True)
    for problem in outcome.problems:
        print(f"          ! {_shortened(problem)}", flush=True)
    if outcome.skipped:
        print(f"          skipped: {outcome.skipped}", flush=True)


def _shortened(text: str, longest: int = 500) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else f"{flat[: longest // 4]} … {flat[-3 * longest // 4 :]}"


if __name__ == "__main__":
    sys.exit(main())
