"""`gym eval profile`: reward profiles of a run's files, without servers and without holding the files in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.results.coverage import Coverage
from nemo_gym.results.jsonl import JsonLines, write_json, write_lines
from nemo_gym.results.profiler import without_indices
from nemo_gym.results.records import rollout_key

INPUTS_FLAG = "--inputs"
ROLLOUTS_FLAG = "--rollouts"

Entries = list[dict[str, Any]]


@dataclass(frozen=True)
class ProfileFiles:
    """The three files of a profile, and how complete the run was (`profile_completion_summary`)."""

    reward_profiling: Path
    agent_metrics: Path
    repeat_level_metrics: Path
    completion: Mapping[str, int | float] = field(default_factory=dict)

    @classmethod
    def beside(cls, rollouts: Path, completion: Mapping[str, int | float] | None = None) -> ProfileFiles:
        stem = rollouts.stem
        return cls(
            rollouts.with_name(f"{stem}_reward_profiling.jsonl"),
            rollouts.with_name(f"{stem}_agent_metrics.json"),
            rollouts.with_name(f"{stem}_repeat_level_metrics.json"),
            completion or {},
        )

    def write(
        self,
        groups: Iterable[Mapping[str, Any]],
        agents: Sequence[Mapping[str, Any]],
        repeats: Sequence[Mapping[str, Any]],
    ) -> None:
        write_lines(self.reward_profiling, groups)
        write_json(self.agent_metrics, agents)
        write_json(self.repeat_level_metrics, repeats)


def profile(inputs: Path, rollouts: Path, allow_partial: bool = False) -> ProfileFiles:
    """Write the profile of `rollouts`, made from the materialised `inputs`, beside them.

    Raises ConfigPathNotFoundError for a missing file, ResultsFileError naming file and line for an unusable line, and
    MismatchedRolloutsError when the files don't belong together or, without `allow_partial`, rollouts are missing.
    """
    from nemo_gym.results.pairing import Pairing

    rows, pairing, offsets = JsonLines(inputs, INPUTS_FLAG), Pairing(), array("q")
    for block in rows.blocks():
        pairing.add_rows(block.read(rollout_key), block.records)
        offsets.extend(block.offsets())
    for block in JsonLines(rollouts, ROLLOUTS_FLAG).blocks():
        pairing.add_results(block.read(rollout_key), block.records)
    paired = pairing.paired()
    paired.require_match(allow_partial)
    files = ProfileFiles.beside(rollouts, paired.completion())
    with rows.random_access() as row_at:
        view = paired.profile(sample=lambda position: without_indices(row_at(offsets[position])))
        repeats = view.repeats()
        agents = _with_coverage(view.agents_across(repeats), paired.coverage_by_label())
        files.write(view.groups(), agents, repeats)
    return files


def _with_coverage(agents: Entries, coverages: Mapping[str, Coverage]) -> Entries:
    """The agents' entries with their coverage; an agent with masked rollouts alone has nothing else."""
    measured = {entry["agent_ref"]["name"] for entry in agents}
    covered = [entry | coverages.get(entry["agent_ref"]["name"], {}) for entry in agents]
    masked = [{"agent_ref": {"name": label}, **block} for label, block in coverages.items() if label not in measured]
    return covered + masked
