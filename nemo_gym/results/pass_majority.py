"""pass@k, average@k and majority@k of tasks with several rollouts.

pass@k for 0/1 scores is the unbiased estimator of Chen et al. 2021 (HumanEval). The names, and the choice of the first
k rollouts elsewhere, are those of existing result files: see the functions for what they leave to be desired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import fmean
from typing import Any

from nemo_gym.results.metric_names import PASS_MAJORITY_SUFFIXES, PassMajorityStat
from nemo_gym.results.records import REWARD, Record, as_number

Task = Sequence[Record]
Scores = dict[str, float]
ScoreFunction = Callable[[Any], Mapping[str, float | bool]]
NO_ANSWER = "no_answer"


def compute_pass_majority_metrics(
    tasks: Sequence[Task], score_fn: ScoreFunction | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], list[list[Scores]], list[str], int]:
    """(metrics, scores per task and rollout, score names, largest number of rollouts of a task); metrics are percents.

    `score_fn` gives the named scores of a rollout (default: `accuracy`, its reward). With `answer_key` also votes are
    counted, and the score `no_answer` is added: 1 where that field is null or absent. For k = 1 … that largest number:

    - `pass@k/<s>`: mean over tasks with at least k scores. 0/1 scores: 1 - C(wrong, k) / C(n, k); others: the best of
      the first k, so that it depends on the order of rollouts.
    - `pass@1[avg-of-k]/<s>`: mean over tasks of the mean of the first k scores; with `/std_dev_across_runs` and
      `/std_err_across_runs` over the first k entries of `per_sample_aggregate` for k > 1.
    - `majority@k/<s>`: mean over all tasks of the mean score of the most frequent (answer, score) pairs among the first
      k rollouts that have an answer; 0 for a task without any.
    - `per_sample_aggregate`: for each score, the mean over tasks of the i-th rollout.
    """
    if not tasks:
        return {}, [], [], 0
    scores = [[_scores(rollout, score_fn, answer_key) for rollout in task] for task in tasks]
    names = sorted({name for task in scores for rollout in task for name in rollout})
    max_k = max(len(task) for task in tasks)
    columns = {name: _score_columns(name, tasks, scores, answer_key, max_k) for name in names}
    metrics: dict[str, Any] = {}
    for k in range(max_k):
        for name, curves in columns.items():
            metrics |= {
                key.format(k=k + 1, name=name): 100.0 * curve[k] for key, curve in curves.items() if k < len(curve)
            }
    runs = {name: [100.0 * value for value in _per_sample(name, scores, max_k)] for name in names}
    metrics["per_sample_aggregate"] = runs
    return metrics | _across_runs(runs, max_k), scores, names, max_k


def add_avg_sample_std_dev(
    metrics: dict[str, Any], all_score_dicts: Sequence[Sequence[Scores]], score_names: Iterable[str], max_k: int
) -> None:
    """Add `pass@1[avg-of-k]/<s>/avg_sample_std_dev` for k > 1 to `metrics`, as a fraction rather than a percent: the
    mean over tasks with at least two scores of the sample deviation of their first k."""
    for k in range(2, max_k + 1):
        for name in score_names:
            firsts = [_values(name, task)[:k] for task in all_score_dicts]
            deviations = [_sample_deviation(first) for first in firsts if len(first) > 1]
            if deviations:
                metrics[f"pass@1[avg-of-{k}]/{name}{PassMajorityStat.AVG_SAMPLE_STD_DEV.suffix}"] = fmean(deviations)


def compute_subset_metrics(
    tasks: Sequence[Task], subset_key: str, score_fn: ScoreFunction | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """`compute_pass_majority_metrics` of each subset, as `<subset>/<metric>`.

    A task's subset is the first true value of `subset_key` among its rollouts; tasks without one are left out.
    """
    subsets: dict[Any, list[Task]] = {}
    for task in tasks:
        subset = next((rollout[subset_key] for rollout in task if rollout.get(subset_key)), None)
        if subset is not None:
            subsets.setdefault(subset, []).append(task)
    metrics = {subset: compute_pass_majority_metrics(own, score_fn, answer_key)[0] for subset, own in subsets.items()}
    return {
        f"{subset}/{name}": value
        for subset, own in metrics.items()
        for name, value in own.items()
        if name != "per_sample_aggregate"
    }


def highest_k_metrics(
    agent_metrics: Mapping[str, Any],
    pattern: str,
    score_names: Iterable[str] | None = None,
    exclude_names: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The entries named `<pattern>/<score>` at the largest k, where `pattern` has `{k}` in place of k.

    Statistics of such metrics (`…/std_dev_across_runs` and the like) are left out.
    """
    wanted = None if score_names is None else set(score_names)
    excluded = set(exclude_names or ())
    expression = re.compile("^" + re.escape(pattern).replace(re.escape("{k}"), r"(?P<k>\d+)") + r"/(?P<score>.+)$")
    found: dict[int, dict[str, Any]] = {}
    for key, value in agent_metrics.items():
        match = expression.match(key)
        if match is None or key.endswith(PASS_MAJORITY_SUFFIXES):
            continue
        score = match["score"]
        if score not in excluded and (wanted is None or score in wanted):
            found.setdefault(int(match["k"]), {})[key] = value
    return found[max(found)] if found else {}


def _scores(rollout: Record, score_fn: ScoreFunction | None, answer_key: str | None) -> Scores:
    """Named scores of a rollout. What isn't a finite number is no score."""
    named = {"accuracy": as_number(REWARD, rollout.get(REWARD))} if score_fn is None else score_fn(rollout)
    scores = {name: as_number(name, int(v) if isinstance(v, bool) else v) for name, v in named.items()}
    if answer_key is not None:
        scores[NO_ANSWER] = int(rollout.get(answer_key) is None)
    return {name: score for name, score in scores.items() if score is not None}


def _score_columns(
    name: str, tasks: Sequence[Task], scores: Sequence[Sequence[Scores]], answer_key: str | None, max_k: int
) -> dict[str, list[float]]:
    """For each kind of metric its value for k = 1, 2, …, as fractions, by the pattern of its name."""
    values = [_values(name, task) for task in scores]
    curves = {
        "pass@{k}/{name}": _mean_curve([_pass_curve(task) for task in values]),
        "pass@1[avg-of-{k}]/{name}": _mean_curve([_extended(_running_mean(task), max_k) for task in values if task]),
    }
    if answer_key is not None:
        votes = [_votes(name, task, own, answer_key) for task, own in zip(tasks, scores, strict=True)]
        majorities = [_extended(_majority_curve(ballot), max_k) or [0.0] * max_k for ballot in votes]
        curves["majority@{k}/{name}"] = _mean_curve(majorities)
    return curves


def _values(name: str, task: Sequence[Scores]) -> list[float]:
    return [rollout[name] for rollout in task if name in rollout]


def _pass_curve(values: list[float]) -> Sequence[float]:
    """pass@k of one task for k = 1 … n."""
    if all(value in (0, 1) for value in values):
        return _binary_pass_curve(len(values), sum(1 for value in values if value == 0))
    return list(accumulate(values, max))


@lru_cache(maxsize=4096)
def _binary_pass_curve(n: int, wrong: int) -> tuple[float, ...]:
    return tuple(1.0 - math.comb(wrong, k) / math.comb(n, k) for k in range(1, n + 1))


def _running_mean(values: Sequence[float]) -> list[float]:
    return [total / count for count, total in enumerate(accumulate(values), start=1)]


def _votes(name: str, task: Task, scores: Sequence[Scores], answer_key: str) -> list[tuple[Any, float] | None]:
    return [
        None if rollout.get(answer_key) is None or name not in own else (rollout[answer_key], own[name])
        for rollout, own in zip(task, scores, strict=True)
    ]


def _majority_curve(votes: Sequence[tuple[Any, float] | None]) -> list[float]:
    """Mean score of the most frequent (answer, score) pairs among the first k votes, for k = 1 … n."""
    curve: list[float] = []
    counts: dict[Any, int] = {}
    most, leaders, leaders_total = 0, 0, 0.0
    for vote in votes:
        if vote is not None:
            key, score = _hashable(vote), vote[1]
            counts[key] = counts.get(key, 0) + 1
            if counts[key] > most:
                most, leaders, leaders_total = counts[key], 0, 0.0
            if counts[key] == most:
                leaders, leaders_total = leaders + 1, leaders_total + score
        curve.append(leaders_total / leaders if leaders else 0.0)
    return curve


def _hashable(vote: tuple[Any, float]) -> object:
    try:
        hash(vote)
    except TypeError:
        return repr(vote[0]), vote[1]
    return vote


def _extended(curve: list[float], length: int) -> list[float]:
    """A task with fewer than k rollouts counts with what it has."""
    return curve + curve[-1:] * (length - len(curve))


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean over curves at each k, of those that reach it."""
    longest = max(map(len, curves), default=0)
    return [fmean(curve[k] for curve in curves if k < len(curve)) for k in range(longest)]


def _per_sample(name: str, scores: Sequence[Sequence[Scores]], max_k: int) -> list[float]:
    samples = [[task[i][name] for task in scores if i < len(task) and name in task[i]] for i in range(max_k)]
    return [fmean(sample) for sample in samples if sample]


def _across_runs(runs: Mapping[str, list[float]], max_k: int) -> dict[str, float]:
    spread = {}
    for k in range(2, max_k + 1):
        for name, values in runs.items():
            first = values[:k]
            if len(first) > 1:
                deviation = _sample_deviation(first)
                metric = f"pass@1[avg-of-{k}]/{name}"
                spread[metric + PassMajorityStat.STD_DEV_ACROSS_RUNS.suffix] = deviation
                spread[metric + PassMajorityStat.STD_ERR_ACROSS_RUNS.suffix] = deviation / math.sqrt(len(first))
    return spread


def _sample_deviation(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
