"""Metrics that environments share, as mixins for a resources server, and the functions below them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from nemo_gym.results.pass_majority import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)

Record = dict[str, Any]
Tasks = list[list[Record]]
AVERAGE, PASS, MAJORITY = "pass@1[avg-of-{k}]", "pass@{k}", "majority@{k}"


@dataclass(frozen=True)
class Headline:
    """Metrics worth showing: those named `<pattern>/<score>` at the largest k; `scores` None means all of them."""

    pattern: str
    scores: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()


class PassMetricsMixin:
    """pass@k, average@k and majority@k of the scores of a rollout, for the hooks of a resources server.

    Put it before the server class. `answer_key` is the field with the answer to vote on, `subset_key` one that splits
    the tasks, `key_names` metrics shown as they are, and `headlines` those at the largest k.
    """

    answer_key: ClassVar[str | None] = None
    subset_key: ClassVar[str | None] = None
    sample_deviation: ClassVar[bool] = False
    key_names: ClassVar[tuple[str, ...]] = ("mean/reward",)
    headlines: ClassVar[tuple[Headline, ...]] = (Headline(AVERAGE), Headline(PASS), Headline(MAJORITY))

    def scores(self, record: Record) -> Mapping[str, float | bool]:
        """The named scores of a rollout, from its verify response: 0 to 1, or true and false."""
        return {"accuracy": record["reward"]}

    def compute_metrics(self, tasks: Tasks) -> dict[str, Any]:
        """For a list of tasks, each a list of verify responses. Values are percents."""
        metrics, scores, names, max_k = compute_pass_majority_metrics(tasks, self.scores, self.answer_key)
        if self.sample_deviation:
            add_avg_sample_std_dev(metrics, scores, names, max_k)
        if self.subset_key is not None:
            metrics |= compute_subset_metrics(tasks, self.subset_key, self.scores, self.answer_key)
        return metrics

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The headline among all metrics of an agent."""
        shown = {name: agent_metrics[name] for name in self.key_names if name in agent_metrics}
        for headline in self.headlines:
            shown |= highest_k_metrics(agent_metrics, headline.pattern, headline.scores, headline.without)
        return shown


def mean_by(records: Iterable[Mapping[str, Any]], field: str, value: str = "reward") -> dict[str, float]:
    """The mean of `value` for each value of `field`, by that value as text; records without the field are left out,
    booleans read `true` and `false`."""
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        kind = record.get(field)
        if kind is not None:
            groups[str(kind).lower() if isinstance(kind, bool) else str(kind)].append(float(record[value]))
    return {kind: fmean(values) for kind, values in sorted(groups.items())}


def prefixes_with(metrics: Mapping[str, Any], score: str) -> list[str]:
    """The prefixes of metrics named `<prefix>/<score>`, for adding more beside it."""
    return [name.removesuffix(f"/{score}") for name in metrics if name.endswith(f"/{score}")]


def f1_scores(metrics: Mapping[str, Any], correct: str = "correct", incorrect: str = "incorrect") -> dict[str, float]:
    """`<prefix>/f1` and `<prefix>/accuracy_given_attempted`, in percent, for every prefix with both scores.

    Precision is correct / (correct + incorrect), which is the accuracy of what was attempted; recall is correct.
    """
    added: dict[str, float] = {}
    for prefix in prefixes_with(metrics, correct):
        right, wrong = metrics[f"{prefix}/{correct}"], metrics.get(f"{prefix}/{incorrect}")
        if not all(isinstance(number, int | float) for number in (right, wrong)):
            continue
        precision, recall = (right / (right + wrong) if right + wrong else 0.0), right / 100.0
        total = precision + recall
        added[f"{prefix}/f1"] = 100.0 * 2 * precision * recall / total if total else 0.0
        added[f"{prefix}/accuracy_given_attempted"] = 100.0 * precision
    return added


def flat(tasks: Sequence[Sequence[Record]]) -> list[Record]:
    """All rollouts of all tasks."""
    return [record for task in tasks for record in task]
