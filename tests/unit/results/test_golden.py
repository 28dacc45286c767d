"""The reference's own inputs and outputs, to nine digits and in its key order."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.reward_profile import compute_aggregate_metrics, compute_pass_majority_metrics, highest_k_metrics

GOLDEN = Path(__file__).parent / "golden"
RESPONSES = [json.loads(line) for line in (GOLDEN / "aggregate-input.jsonl").read_text().splitlines()]
EXPECTED = json.loads((GOLDEN / "aggregate-output.json").read_text())


def assert_same(actual: Any, expected: Any, where: str = "") -> None:
    if isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for position, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{where}[{position}]")
    elif isinstance(expected, float):
        assert isinstance(actual, float), where
        assert math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-15), f"{where}: {actual} != {expected}"
    else:
        assert (type(actual), actual) == (type(expected), expected), where


def pass_majority(tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    return compute_pass_majority_metrics(
        tasks, score_fn=lambda rollout: {"accuracy": rollout["reward"]}, answer_key="extracted_answer"
    )[0]


def headline(metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "mean/reward": metrics["mean/reward"],
        **highest_k_metrics(metrics, "pass@1[avg-of-{k}]", score_names=["accuracy", "no_answer"]),
        **highest_k_metrics(metrics, "pass@{k}", score_names=["no_answer"]),
        **highest_k_metrics(metrics, "majority@{k}", score_names=["accuracy"]),
    }


def test_aggregate_metrics_without_hooks() -> None:
    assert_same(compute_aggregate_metrics(RESPONSES).model_dump(), EXPECTED["compute_aggregate_metrics"])


def test_aggregate_metrics_with_hooks() -> None:
    metrics = compute_aggregate_metrics(RESPONSES, pass_majority, headline)
    assert_same(metrics.model_dump(), EXPECTED["with_pass_majority_hooks"])


def test_pass_and_majority_metrics_alone() -> None:
    tasks = [[r for r in RESPONSES if r["_ng_task_index"] == task] for task in range(6)]
    assert_same(pass_majority(tasks), EXPECTED["compute_pass_majority_metrics[0]"])


@pytest.mark.parametrize("name", ["compute_aggregate_metrics", "with_pass_majority_hooks"])
def test_golden_files_are_not_empty(name: str) -> None:
    assert len(EXPECTED[name]["group_level_metrics"]) == 6
    assert len(RESPONSES) == 22
