"""Statistics over pandas data; without pandas, that it is missing."""

from __future__ import annotations

import importlib
import importlib.util
import math
from typing import Any

import pytest

from nemo_gym.errors import GymError
from nemo_gym.reward_profile import RewardProfiler

HAS_PANDAS = importlib.util.find_spec("pandas") is not None
needs_pandas = pytest.mark.skipif(not HAS_PANDAS, reason="pandas is not installed")
ROWS = {"_ng_task_index": [0, 0, 1], "reward": [1.0, 0.0, 0.5], "hit": [True, False, True], "note": ["a", "b", "c"]}


def frame(**columns: Any) -> Any:
    return importlib.import_module("pandas").DataFrame(columns)


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(GymError, match=r"pip install nemo-gym\[compat\]"):
        RewardProfiler().describe_dataframe(None)
    with pytest.raises(GymError, match="need pandas"):
        RewardProfiler().calculate_metrics_single_df(None)


@needs_pandas
def test_groups_are_described_statistic_by_statistic() -> None:
    entries = RewardProfiler().calculate_metrics_single_df(frame(**ROWS).groupby("_ng_task_index"))
    first, second = RewardProfiler().prepare_for_serialization(entries)
    assert list(first) == [
        "_ng_task_index",
        *(f"{stat}/{column}" for stat in ("mean", "max", "min", "median", "std") for column in ("reward", "hit")),
    ]
    assert (first["mean/reward"], first["std/reward"]) == (0.5, pytest.approx(math.sqrt(0.5)))
    assert second == {
        "_ng_task_index": 1,
        "mean/reward": 0.5,
        "mean/hit": 1.0,
        "max/reward": 0.5,
        "max/hit": 1.0,
        "min/reward": 0.5,
        "min/hit": 1.0,
        "median/reward": 0.5,
        "median/hit": 1.0,
        "std/reward": 0.0,
        "std/hit": 0.0,
    }
    assert entries[0]["histogram/reward"] is not None


@needs_pandas
def test_several_keys_name_a_group() -> None:
    data = frame(**ROWS, agent=["x", "x", "y"])
    entries = RewardProfiler().calculate_metrics_single_df(data.groupby(["_ng_task_index", "agent"]))
    assert [(entry["_ng_task_index"], entry["agent"]) for entry in entries] == [(0, "x"), (1, "y")]


@needs_pandas
def test_missing_values_are_left_out() -> None:
    described = RewardProfiler().describe_dataframe(frame(a=[1.0, float("nan")], b=[2.0, 4.0]))
    assert described.at["mean", "a"] == 1.0
    assert math.isnan(described.at["std", "a"])
    assert described.at["std", "b"] == pytest.approx(math.sqrt(2))


@needs_pandas
def test_a_histogram_counts_what_is_there() -> None:
    column = frame(a=[1.0, 2.0, 2.0, float("nan")])["a"]
    assert sum(RewardProfiler().histogram(column).histogram) == 3
    assert RewardProfiler().histogram(column[column > 5]) is None
