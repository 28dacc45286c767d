from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

import pytest

from nemo_gym.reward_profile import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)

Tasks = list[list[dict[str, Any]]]


def tasks_of(*tasks: list[tuple[object, object]]) -> Tasks:
    return [[{"reward": reward, "answer": answer} for reward, answer in task] for task in tasks]


WORKED = tasks_of([(1, "A"), (0, "B"), (0, None)], [(0.5, "C"), (0.7, "C")])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pass@1/accuracy", 41.67),
        ("pass@2/accuracy", 68.33),
        ("pass@3/accuracy", 100.0),
        ("pass@1[avg-of-1]/accuracy", 75.0),
        ("pass@1[avg-of-2]/accuracy", 55.0),
        ("pass@1[avg-of-3]/accuracy", 46.67),
        ("majority@1/accuracy", 75.0),
        ("majority@2/accuracy", 55.0),
        ("majority@3/accuracy", 55.0),
        ("pass@1[avg-of-2]/accuracy/std_dev_across_runs", 28.28),
        ("pass@1[avg-of-2]/accuracy/std_err_across_runs", 20.0),
    ],
)
def test_worked_example(name: str, value: float) -> None:
    metrics, _, names, max_k = compute_pass_majority_metrics(WORKED, answer_key="answer")
    assert metrics[name] == pytest.approx(value, abs=0.005)
    assert metrics["per_sample_aggregate"]["accuracy"] == pytest.approx([75, 35, 0])
    assert (names, max_k) == (["accuracy", "no_answer"], 3)


def test_scores_per_task_and_rollout() -> None:
    scores = compute_pass_majority_metrics(WORKED, answer_key="answer")[1]
    assert scores[0][2] == {"accuracy": 0, "no_answer": 1}
    assert scores[1] == [{"accuracy": 0.5, "no_answer": 0}, {"accuracy": 0.7, "no_answer": 0}]


def test_no_tasks() -> None:
    assert compute_pass_majority_metrics([]) == ({}, [], [], 0)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_chance_that_a_random_choice_of_k_has_a_right_one(n: int) -> None:
    for right in range(n + 1):
        rewards = [1.0] * right + [0.0] * (n - right)
        metrics = compute_pass_majority_metrics(tasks_of([(reward, "x") for reward in rewards]))[0]
        for k in range(1, n + 1):
            chance = fmean(max(chosen) for chosen in combinations(rewards, k))
            assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * chance)


def test_partial_scores_take_the_best_of_the_first_k() -> None:
    forward = compute_pass_majority_metrics(tasks_of([(0.2, "x"), (0.9, "x")]))[0]
    backward = compute_pass_majority_metrics(tasks_of([(0.9, "x"), (0.2, "x")]))[0]
    assert (forward["pass@1/accuracy"], backward["pass@1/accuracy"]) == pytest.approx((20, 90))
    assert forward["pass@2/accuracy"] == backward["pass@2/accuracy"] == pytest.approx(90)


def test_majority_counts_pairs_of_answer_and_score() -> None:
    metrics = compute_pass_majority_metrics(
        tasks_of([(1, "A"), (0, "A"), (0, "A"), (0.5, "B")], [(1, None), (1, None)]), answer_key="answer"
    )[0]
    assert [metrics[f"majority@{k}/accuracy"] for k in (1, 2, 3, 4)] == pytest.approx([50.0, 25.0, 0.0, 0.0])


def test_majority_averages_tied_answers() -> None:
    metrics = compute_pass_majority_metrics(tasks_of([(1, "A"), (0, "B"), (1, "C")]), answer_key="answer")[0]
    assert metrics["majority@3/accuracy"] == pytest.approx(100 * 2 / 3)


def test_answers_may_be_lists() -> None:
    metrics = compute_pass_majority_metrics(tasks_of([(1, ["A"]), (1, ["A"]), (0, ["B"])]), answer_key="answer")[0]
    assert metrics["majority@3/accuracy"] == pytest.approx(100)


def test_score_function_names_scores_and_booleans_count() -> None:
    metrics, scores, names, _ = compute_pass_majority_metrics(
        WORKED, score_fn=lambda rollout: {"strict": rollout["reward"] == 1, "loose": rollout["reward"] > 0.4}
    )
    assert names == ["loose", "strict"]
    assert scores[0][0] == {"strict": 1, "loose": 1}
    assert metrics["pass@1/loose"] == pytest.approx(100 * (1 / 3 + 1) / 2)
    assert not any(name.startswith("majority") for name in metrics)


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "high", True, [1]])
def test_what_is_no_reward_is_no_score(reward: object) -> None:
    metrics, scores, _, _ = compute_pass_majority_metrics(tasks_of([(1, "A"), (reward, "A")]))
    assert scores == [[{"accuracy": 1}, {}]]
    assert metrics["pass@1/accuracy"] == 100
    assert metrics["pass@1[avg-of-2]/accuracy"] == 100
    assert metrics["per_sample_aggregate"]["accuracy"] == [100]
    assert "pass@2/accuracy" not in metrics


def test_sample_deviation_is_a_fraction() -> None:
    metrics, scores, names, max_k = compute_pass_majority_metrics(WORKED)
    add_avg_sample_std_dev(metrics, scores, names, max_k)
    second, third = (metrics[f"pass@1[avg-of-{k}]/accuracy/avg_sample_std_dev"] for k in (2, 3))
    assert second == pytest.approx(fmean([stdev([1, 0]), stdev([0.5, 0.7])]))
    assert third == pytest.approx(fmean([stdev([1, 0, 0]), stdev([0.5, 0.7])]))
    assert "pass@1[avg-of-1]/accuracy/avg_sample_std_dev" not in metrics


def test_subsets() -> None:
    tasks: Tasks = [
        [{"reward": 1.0, "field": ""}, {"reward": 0.0, "field": "law"}],
        [{"reward": 1.0, "field": "law"}],
        [{"reward": 0.0, "field": "art"}],
        [{"reward": 0.0}],
    ]
    metrics = compute_subset_metrics(tasks, "field")
    assert metrics["law/pass@1/accuracy"] == pytest.approx(75)
    assert metrics["art/pass@1/accuracy"] == 0
    assert {name.split("/")[0] for name in metrics} == {"law", "art"}
    assert not any("per_sample_aggregate" in name for name in metrics)


NAMED = {
    "pass@1/accuracy": 1,
    "pass@2/accuracy": 2,
    "pass@10/accuracy": 10,
    "pass@10/no_answer": 11,
    "pass@10/format/strict": 12,
    "pass@10/accuracy/std_dev_across_runs": 13,
    "pass@1[avg-of-10]/accuracy": 14,
    "law/pass@20/accuracy": 15,
}


@pytest.mark.parametrize(
    ("pattern", "wanted", "excluded", "found"),
    [
        ("pass@{k}", None, None, {"pass@10/accuracy", "pass@10/no_answer", "pass@10/format/strict"}),
        ("pass@{k}", ["accuracy"], None, {"pass@10/accuracy"}),
        ("pass@{k}", None, ["no_answer", "format/strict"], {"pass@10/accuracy"}),
        ("pass@1[avg-of-{k}]", None, None, {"pass@1[avg-of-10]/accuracy"}),
        ("law/pass@{k}", None, None, {"law/pass@20/accuracy"}),
        ("majority@{k}", None, None, set()),
    ],
)
def test_highest_k(pattern: str, wanted: list[str] | None, excluded: list[str] | None, found: set[str]) -> None:
    metrics = highest_k_metrics(NAMED, pattern, score_names=wanted, exclude_names=excluded)
    assert metrics == {name: NAMED[name] for name in found}


def test_many_repeats_keep_their_precision() -> None:
    metrics = compute_pass_majority_metrics(tasks_of([(int(i < 3), "x") for i in range(256)]))[0]
    assert metrics["pass@128/accuracy"] == pytest.approx(100 * (1 - math.comb(253, 128) / math.comb(256, 128)))
    assert metrics["pass@254/accuracy"] == 100
