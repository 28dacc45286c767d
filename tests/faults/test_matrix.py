"""The matrix names every pair that can exist, and one cell of it is run with every suite."""

import pytest

from tests.faults import __main__ as faults
from tests.faults.cells import OF_THE_RUN, Cell, Fault, Moment, Victim, all_cells, impossible, pairwise, why_not
from tests.faults.trial import Outcome
from tests.mock_provider import MockProvider


def test_every_pair_that_can_exist_is_chosen() -> None:
    possible = {pair for cell in all_cells() if why_not(cell) is None for pair in cell.pairs}
    chosen = [cell for cell in pairwise() if why_not(cell) is None]
    assert {pair for cell in chosen for pair in cell.pairs} == possible
    assert len(set(pairwise())) == len(pairwise()) == len(chosen)
    assert len([*chosen, *OF_THE_RUN]) >= 40


def test_every_victim_fault_and_moment_is_in_the_matrix_or_ruled_out_with_a_reason() -> None:
    assert len(all_cells()) == 7 * 5 * 5
    assert all(reason and cell in all_cells() for cell, reason in impossible().items())


def test_a_collector_killed_in_the_middle_of_a_record_goes_on_without_a_trace(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """B53, B54: half a line and rollouts in flight, with real processes."""
    cell = Cell(Victim.COLLECTOR, Fault.KILL, Moment.RECORD)
    with MockProvider(faults.SCRIPT) as provider:
        outcomes = list(faults.Matrix(tmp_path_factory.mktemp("faults"), provider.base_url).run([cell], False))
    assert [_told(outcome) for outcome in outcomes] == [("undisturbed-process", []), (cell.name, [])]


def _told(outcome: Outcome) -> tuple[str, list[str]]:
    return outcome.name, outcome.problems
