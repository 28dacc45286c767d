from __future__ import annotations

from typing import Any, ClassVar

import pytest

from nemo_gym.verifiers.metrics import (
    AVERAGE,
    PASS,
    Headline,
    PassMetricsMixin,
    f1_scores,
    flat,
    mean_by,
)


class Graded(PassMetricsMixin):
    answer_key: ClassVar[str | None] = "answer"
    subset_key: ClassVar[str | None] = "level"
    sample_deviation: ClassVar[bool] = True
    headlines: ClassVar[tuple[Headline, ...]] = (
        Headline(AVERAGE, ("accuracy",)),
        Headline(PASS, without=("no_answer",)),
    )

    def scores(self, record: dict[str, Any]) -> dict[str, float | bool]:
        return {"accuracy": record["reward"] > 0}


TASKS: list[list[dict[str, Any]]] = [
    [{"reward": 1.0, "answer": "A", "level": "easy"}, {"reward": 0.0, "answer": "B", "level": "easy"}],
    [{"reward": 0.0, "answer": None, "level": "hard"}, {"reward": 0.0, "answer": None, "level": "hard"}],
]


def test_the_hooks_of_a_server() -> None:
    metrics = Graded().compute_metrics(TASKS)
    assert metrics["pass@2/accuracy"] == 50.0
    assert metrics["easy/pass@2/accuracy"] == 100.0
    assert metrics["pass@1[avg-of-2]/accuracy"] == 25.0
    assert metrics["pass@2/no_answer"] == 50.0
    assert metrics["pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(0.35355, abs=1e-4)
    assert Graded().get_key_metrics({**metrics, "mean/reward": 0.25, "other": 1}) == {
        "mean/reward": 0.25,
        "pass@1[avg-of-2]/accuracy": 25.0,
        "pass@2/accuracy": 50.0,
    }


def test_without_settings_the_reward_is_the_score() -> None:
    assert PassMetricsMixin().compute_metrics(TASKS)["pass@1[avg-of-2]/accuracy"] == 25.0


def test_means_by_a_field() -> None:
    records: list[dict[str, Any]] = [
        {"kind": "json", "reward": 1},
        {"kind": "json", "reward": 0},
        {"kind": True, "reward": 1},
        {"reward": 1},
    ]
    assert mean_by(records, "kind") == {"json": 0.5, "true": 1.0}
    assert mean_by(flat(TASKS), "level") == {"easy": 0.5, "hard": 0.0}


def test_f1_beside_every_pair_of_scores() -> None:
    metrics = {"pass@1/correct": 60.0, "pass@1/incorrect": 20.0, "x/correct": 0.0, "x/incorrect": 0.0, "y/correct": 1.0}
    found = f1_scores(metrics)
    assert found["pass@1/accuracy_given_attempted"] == 75.0
    assert found["pass@1/f1"] == pytest.approx(100 * 2 * 0.75 * 0.6 / 1.35)
    assert (found["x/f1"], found["x/accuracy_given_attempted"]) == (0.0, 0.0)
    assert not any(name.startswith("y/") for name in found)
