"""How much of what was run is a measurement: a rollout with a true `mask_sample` is none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from nemo_gym.results.labels import rollout_agent_label, rollout_run_labels
from nemo_gym.results.records import TASK_INDEX, Record, is_masked, rollout_key

Coverage = dict[str, int]


def coverage(measured_tasks: Collection[object], masked_tasks: Collection[object]) -> Coverage:
    """The coverage block, given the task of every measured and of every masked rollout. Empty when none was masked."""
    if not masked_tasks:
        return {}
    return {
        "coverage/measured_rollouts": len(measured_tasks),
        "coverage/masked_rollouts": len(masked_tasks),
        "coverage/measured_tasks": len(set(measured_tasks)),
        "coverage/fully_masked_tasks": len(set(masked_tasks) - set(measured_tasks)),
    }


def select_measured(
    rows: Sequence[Record], results: Sequence[Record]
) -> tuple[list[Record], list[Record], list[Record], Coverage]:
    """(rows, results, masked results, coverage block): masked results and their rows are taken out, others stay."""
    masked = [result for result in results if is_masked(result)]
    masked_keys = {rollout_key(result) for result in masked}
    measured = [result for result in results if not is_masked(result)]
    kept = [row for row in rows if rollout_key(row) not in masked_keys] if masked else list(rows)
    return kept, measured, masked, coverage(_tasks(measured), _tasks(masked))


def coverage_by_agent(rows: Sequence[Record], results: Sequence[Record]) -> dict[str, Coverage]:
    """The coverage block of each run label of which a rollout was masked. A result belongs to its row's run."""
    labels = rollout_run_labels(rows)
    row_of = {rollout_key(row): row for row in rows}
    tasks: dict[str, tuple[list[object], list[object]]] = {}
    for result in results:
        row = row_of.get(rollout_key(result), result)
        label = rollout_agent_label(row, labels)
        if label is not None:
            tasks.setdefault(label, ([], []))[is_masked(result)].append(result[TASK_INDEX])
    blocks = {label: coverage(measured, masked) for label, (measured, masked) in tasks.items()}
    return {label: block for label, block in blocks.items() if block}


def _tasks(records: Iterable[Record]) -> list[object]:
    return [record[TASK_INDEX] for record in records]
