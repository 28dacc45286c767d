"""What `/aggregate_metrics` answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_gym.results.coverage import coverage
from nemo_gym.results.efficiency import Efficiency
from nemo_gym.results.metric_names import Stat
from nemo_gym.results.records import MASK_SAMPLE, PERF, ROLLOUT_INDEX, TASK_INDEX, Record, index_of, is_masked
from nemo_gym.results.table import RolloutTable

if TYPE_CHECKING:
    from nemo_gym.results.profiling import Profile

Entry = dict[str, Any]
Tasks = list[list[dict[str, Any]]]
MetricsHook = Callable[[Tasks], Mapping[str, Any]]
KeyMetricsHook = Callable[[dict[str, Any]], Mapping[str, Any]]

_AGENT = "agent"
_PER_TASK = "per_task_metrics"


class AggregateMetricsMixin:
    """The metric hooks of a server. Override what the environment wants to add or choose."""

    def compute_metrics(self, tasks: Tasks) -> dict[str, Any]:
        """Metrics of a run, added to the general ones.

        `tasks` holds the measured verify responses of each task, tasks ascending by index. An entry `per_task_metrics`,
        a list of objects with `_ng_task_index`, goes to the tasks' own entries.
        """
        return {}

    def compute_repeat_metrics(self, tasks: Tasks) -> dict[str, Any]:
        """Metrics of a single repeat, from the rollouts of that repeat alone."""
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The headline among a run's metrics."""
        return mean_metrics(agent_metrics)


@dataclass
class AggregatedMetrics:
    """The fields of the answer; all empty for a run without rollouts."""

    group_level_metrics: list[Entry] = field(default_factory=list)
    agent_metrics: Entry = field(default_factory=dict)
    key_metrics: Entry = field(default_factory=dict)
    perf_summary: Entry | None = None
    repeat_level_metrics: list[Entry] = field(default_factory=list)


class BaseMetrics:
    """Metrics that need no hook, from records given one by one, of which only the numbers are kept.

    Add every record, then read; `groups` makes one task's entry at a time.
    """

    def __init__(self) -> None:
        self._table = RolloutTable(ignore=frozenset({MASK_SAMPLE}))
        self._masked_tasks: list[int] = []
        self._repeats: set[int] = set()
        self._efficiency = Efficiency()
        self._total = 0

    def add(self, record: Record) -> None:
        task, rollout = record.get(TASK_INDEX), record.get(ROLLOUT_INDEX)
        if type(task) is not int or type(rollout) is not int:
            task, rollout = indices(record)
        self._total += 1
        self._repeats.add(rollout)
        perf = record.get(PERF)
        if perf and isinstance(perf, Mapping):
            self._efficiency.add(perf)
        if record.get(MASK_SAMPLE):
            self._masked_tasks.append(task)
        else:
            self._table.add(task, rollout, record)

    @property
    def measured(self) -> int:
        return len(self._table)

    def coverage(self) -> Entry:
        return dict(coverage(self._table.tasks, self._masked_tasks))

    def perf_summary(self) -> Entry | None:
        return self._efficiency.summary(self._total)

    def num_repeats(self) -> int:
        """Distinct rollout indices, of masked rollouts too."""
        return len(self._repeats)

    def groups(self) -> Iterator[Entry]:
        return self._profile().groups()

    def repeats(self) -> list[Entry]:
        return [_without_agent(entry) for entry in self._profile().repeats()]

    def agent_metrics(self) -> Entry:
        """Statistics over all measured rollouts."""
        entries = self._profile().agents()
        return _without_agent(entries[0]) if entries else {}

    def _profile(self) -> Profile:
        from nemo_gym.results.profiling import Profile

        self._table.seal()
        return Profile(self._table, [_AGENT], by_run=False, sample=lambda key: {"agent_ref": {"name": _AGENT}})


def aggregate(
    verify_responses: Sequence[Record],
    compute_metrics: MetricsHook | None = None,
    get_key_metrics: KeyMetricsHook | None = None,
    compute_repeat_metrics: MetricsHook | None = None,
) -> AggregatedMetrics:
    """Metrics of a run's verify responses. Hooks are left uncalled where they are the mixin's own."""
    base = BaseMetrics()
    for response in verify_responses:
        base.add(response)
    return HookedMetrics(base, verify_responses, compute_metrics, get_key_metrics, compute_repeat_metrics).combined()


@dataclass
class HookedMetrics:
    """Base metrics and what a server's hooks make of them."""

    base: BaseMetrics
    responses: Sequence[Record]
    compute_metrics: MetricsHook | None
    get_key_metrics: KeyMetricsHook | None
    compute_repeat_metrics: MetricsHook | None

    def combined(self) -> AggregatedMetrics:
        from nemo_gym.results.profiling import across_repeats

        coverage_block, perf = self.base.coverage(), self.base.perf_summary()
        if not self.base.measured:
            return AggregatedMetrics([], coverage_block, dict(coverage_block), perf, [])
        groups, repeats = list(self.base.groups()), self.base.repeats()
        metrics = self.base.agent_metrics() | across_repeats(repeats) | coverage_block
        scored = self._scored()
        self._add_custom(metrics, groups, scored)
        metrics["num_repeats"] = self.base.num_repeats()
        choose = self.get_key_metrics or mean_metrics
        key_metrics = dict(choose(metrics)) | coverage_block
        if overridden(self.compute_repeat_metrics) and repeats:
            self._replace_repeat_metrics(metrics, repeats, scored)
        return AggregatedMetrics(groups, metrics, key_metrics, perf, repeats)

    def _scored(self) -> list[dict[str, Any]]:
        """The measured responses, each with both indices and without mask. Made only when a hook will read them."""
        if not (overridden(self.compute_metrics) or overridden(self.compute_repeat_metrics)):
            return []
        measured = (response for response in self.responses if not is_masked(response))
        return [_plain(response) for response in measured]

    def _add_custom(self, metrics: Entry, groups: list[Entry], scored: list[dict[str, Any]]) -> None:
        if self.compute_metrics is None or not overridden(self.compute_metrics):
            return
        custom = dict(self.compute_metrics(by_task(scored)))
        per_task = {entry.get(TASK_INDEX): entry for entry in custom.pop(_PER_TASK, None) or ()}
        for group in groups:
            group.update(_without_infinite(per_task.get(group[TASK_INDEX], {})))
        metrics.update(_without_infinite(custom))

    def _replace_repeat_metrics(self, metrics: Entry, repeats: list[Entry], scored: list[dict[str, Any]]) -> None:
        """Put the hook's own values in place of the general ones of the same names, where they are usable."""
        from nemo_gym.results.profiling import across_repeats

        assert self.compute_repeat_metrics is not None
        custom = [
            self.compute_repeat_metrics(by_task([r for r in scored if r[ROLLOUT_INDEX] == entry[ROLLOUT_INDEX]]))
            for entry in repeats
        ]
        names = dict.fromkeys(name for values in custom for name in values)
        for name in names:
            usable = _is_finite(metrics.get(name, 0.0)) and all(_is_finite(values.get(name)) for values in custom)
            for entry, values in zip(repeats, custom, strict=True):
                entry.pop(name, None)
                if usable:
                    entry[name] = float(values[name])
            for stat in Stat:
                metrics.pop(f"{stat.across_repeats_prefix}{name}", None)
        metrics.update(across_repeats([{name: entry[name] for name in names if name in entry} for entry in repeats]))


def mean_metrics(agent_metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in agent_metrics.items() if name.startswith(Stat.MEAN.prefix)}


def overridden(hook: Callable[..., Any] | None) -> bool:
    """Whether a metrics hook does anything: it is given, and isn't one of the mixin's that return nothing."""
    inherited = (AggregateMetricsMixin.compute_metrics, AggregateMetricsMixin.compute_repeat_metrics)
    return hook is not None and getattr(hook, "__func__", hook) not in inherited


def indices(record: Record) -> tuple[int, int]:
    """(task index, rollout index), 0 where absent."""
    return index_of(record, TASK_INDEX) or 0, index_of(record, ROLLOUT_INDEX) or 0


def by_task(scored: Iterable[dict[str, Any]]) -> Tasks:
    """Rollouts by task, tasks ascending, rollouts of a task in the order given."""
    tasks: dict[int, list[dict[str, Any]]] = {}
    for rollout in scored:
        tasks.setdefault(rollout[TASK_INDEX], []).append(rollout)
    return [tasks[task] for task in sorted(tasks)]


def _plain(response: Record) -> dict[str, Any]:
    task, rollout = indices(response)
    fields = {name: value for name, value in response.items() if name != MASK_SAMPLE}
    return fields | {TASK_INDEX: task, ROLLOUT_INDEX: rollout}


def _without_agent(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "agent_ref"}


def _without_infinite(metrics: Mapping[str, Any]) -> Entry:
    """The metrics but for NaN and infinities, which JSON can't carry."""
    return {name: value for name, value in metrics.items() if not isinstance(value, float) or math.isfinite(value)}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
