from __future__ import annotations

import logging
import math
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.reward_profile import RewardProfiler, coverage_by_agent, select_measured
from tests.unit.results.rollouts import result, row

Records = list[dict[str, Any]]


def profile(results: Records, rows: Records | None = None) -> tuple[Records, Records, Records]:
    rows = rows or [row(r["_ng_task_index"], r["_ng_rollout_index"]) for r in results]
    return RewardProfiler().profile_from_data(rows, results)


def random_results(seed: int) -> Records:
    rng = random.Random(seed)
    keys = [(task, rollout) for task in range(7) for rollout in range(5) if rng.random() < 0.8]
    rng.shuffle(keys)
    return [
        result(task, rollout, rng.choice([0.0, 1.0, 0.25]), length=rng.randrange(1000), **_sometimes(rng))
        for task, rollout in keys
    ]


def _sometimes(rng: random.Random) -> dict[str, float | None]:
    return {"score": rng.gauss(0, 1) if rng.random() < 0.6 else None}


def numbers(results: Records, column: str, **where: int) -> list[float]:
    chosen = [r for r in results if all(r[f"_ng_{name}_index"] == value for name, value in where.items())]
    return [r[column] for r in chosen if r.get(column) is not None]


def expected_statistics(values: list[float]) -> dict[str, float]:
    stats = {"mean": statistics.fmean(values), "max": max(values), "min": min(values)}
    return stats | {"median": statistics.median(values)}


def quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


@pytest.mark.parametrize("seed", range(5))
def test_group_and_agent_statistics_match_plain_formulas(seed: int) -> None:
    results = random_results(seed)
    groups, (agent,), _ = profile(results)
    assert [group["_ng_task_index"] for group in groups] == sorted({r["_ng_task_index"] for r in results})
    for entry, where in [*((g, {"task": g["_ng_task_index"]}) for g in groups), (agent, {})]:
        for column in ("reward", "length", "score"):
            values = numbers(results, column, **where)
            found = {name: entry[f"{name}/{column}"] for name in ("mean", "max", "min", "median") if values}
            assert found == pytest.approx(expected_statistics(values) if values else {})
            if len(values) > 1:
                assert entry[f"std/{column}"] == pytest.approx(statistics.stdev(values))
            if not values:
                assert not [name for name in entry if name.endswith(f"/{column}")]


@pytest.mark.parametrize("seed", range(5))
def test_repeat_statistics_match_plain_formulas(seed: int) -> None:
    results = random_results(seed)
    _, _, repeats = profile(results)
    tasks = {r["_ng_task_index"] for r in results}
    assert [entry["_ng_rollout_index"] for entry in repeats] == sorted({r["_ng_rollout_index"] for r in results})
    for entry in repeats:
        rollout = entry["_ng_rollout_index"]
        present = len(numbers(results, "reward", rollout=rollout))
        assert (entry["sample_count"], entry["missing_count"]) == (present, len(tasks) - present)
        for column in ("length", "reward", "score"):
            values = numbers(results, column, rollout=rollout)
            if not values:
                assert f"mean/{column}" not in entry
                continue
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            assert entry[f"mean/{column}"] == pytest.approx(statistics.fmean(values))
            assert entry[f"std/{column}"] == pytest.approx(deviation)
            assert entry[f"sem/{column}"] == pytest.approx(deviation / math.sqrt(len(values)))
            assert (entry[f"p25/{column}"], entry[f"p75/{column}"]) == pytest.approx(quartiles(values))


def test_interval_of_a_repeat_and_across_repeats() -> None:
    results = [result(task, repeat, float(task == repeat)) for task in range(3) for repeat in range(2)]
    _, (agent,), repeats = profile(results)
    third, margin = 1 / 3, 4.302652729749462 / 3
    assert repeats[0]["ci_low_95/reward"] == pytest.approx(third - margin)
    assert repeats[1]["ci_high_95/reward"] == pytest.approx(third + margin)
    assert agent["mean_across_repeats/mean/reward"] == pytest.approx(third)
    assert agent["ci_low_95_across_repeats/mean/reward"] == agent["ci_high_95_across_repeats/mean/reward"] == third
    assert not any("across_repeats/max" in name for name in agent)


def test_a_single_repeat_has_no_repeat_level() -> None:
    _, (agent,), repeats = profile([result(0, 3, 1.0), result(1, 3, 0.0)])
    assert repeats == []
    assert not any("across_repeats" in name for name in agent)


def test_deviation_of_groups_of_one_is_zero_for_complete_columns_only() -> None:
    results = [result(0, 0, 1.0, extra=None), result(1, 0, 1.0, extra=2), result(1, 1, 1.0), result(1, 2, 0.0)]
    one, several = profile(results)[0]
    assert one["std/reward"] == 0.0
    assert "std/extra" not in one
    assert "mean/extra" not in one
    assert several["std/reward"] == pytest.approx(statistics.stdev([1, 1, 0]))
    assert "std/extra" not in several
    assert several["mean/extra"] == 2


def test_usage_wins_and_only_top_level_numbers_count() -> None:
    response = {"usage": {"output_tokens": 5, "input_tokens": 3, "details": {"cached": 1}, "note": "x"}}
    one = result(0, 0, 1.0, output_tokens=99, steps=4, ok=True, text="7", nested={"n": 1}, _hidden=3, response=response)
    (group,), _, _ = profile([one])
    means = {name[5:]: value for name, value in group.items() if name.startswith("mean/")}
    assert means == {"reward": 1.0, "steps": 4.0, "ok": 1.0, "output_tokens": 5.0, "input_tokens": 3.0}
    assert group["rollout_infos"] == [
        {
            "rollout_id": "0:0",
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
            "reward": 1.0,
            "output_tokens": 5,
            "input_tokens": 3,
            "steps": 4,
            "ok": 1,
        }
    ]
    info = RewardProfiler().rollout_info_from_result(one)
    assert [info] == group["rollout_infos"]
    assert list(info) == list(group["rollout_infos"][0])


def test_infos_begin_with_the_reward() -> None:
    fields = {"steps": 4, "response": {"usage": {"tokens": 2}}}
    (group,), _, _ = profile([result(0, 0, None, **fields), result(0, 1, 1.0, **fields)])
    assert [list(info)[3:] for info in group["rollout_infos"]] == [["tokens", "steps"], ["reward", "tokens", "steps"]]


def test_infos_keep_integers_exact_whatever_their_size() -> None:
    large = 2**60 + 1
    (group,), _, _ = profile([result(0, 0, 1, stamp=large, mixed=1), result(0, 1, 0.5, stamp=3, mixed=1.5)])
    assert [info["stamp"] for info in group["rollout_infos"]] == [large, 3]
    assert [repr(info["mixed"]) for info in group["rollout_infos"]] == ["1", "1.5"]
    assert group["max/stamp"] == float(large)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, None, True, "high", [0.5], 10**400])
def test_what_is_no_reward_never_reaches_an_aggregate(reward: object) -> None:
    (group,), (agent,), repeats = profile([result(0, 0, 0.5), result(0, 1, reward, steps=2)])
    for entry in (group, agent):
        assert entry["mean/reward"] == entry["max/reward"] == entry["min/reward"] == 0.5
        assert entry["mean/steps"] == 2
    assert "mean/reward" not in repeats[1]
    assert group["num_rollouts"] == 2
    assert [info.get("reward") for info in group["rollout_infos"]] == [0.5, None]


def test_rollouts_are_listed_by_index_and_rows_shown_without_theirs() -> None:
    (group,), _, _ = profile([result(4, 2), result(4, 0), result(4, 1)])
    assert [info["rollout_id"] for info in group["rollout_infos"]] == ["4:0", "4:1", "4:2"]
    assert group["sample"] == {"question": "q4", "agent_ref": {"name": "solver"}}
    assert "agent_ref" not in group


def test_tasks_run_by_several_labels_are_told_apart() -> None:
    rows = [row(0, 0, "b"), row(0, 1, "b"), row(0, 2, "a"), row(1, 0, "a")]
    results = [result(0, 0, 1.0), result(0, 1, 0.0), result(0, 2, 1.0), result(1, 0, 0.0)]
    groups, agents, repeats = RewardProfiler().profile_from_data(rows, results)
    assert [(g["_ng_task_index"], g["agent_ref"]["name"], g["mean/reward"]) for g in groups] == [
        (0, "a", 1.0),
        (0, "b", 0.5),
        (1, "a", 0.0),
    ]
    assert [g["sample"]["agent_ref"]["name"] for g in groups] == ["a", "b", "a"]
    assert [(a["agent_ref"]["name"], a["mean/reward"]) for a in agents] == [("a", 0.5), ("b", 0.5)]
    assert [(r["agent_ref"]["name"], r["_ng_rollout_index"], r["missing_count"]) for r in repeats] == [
        ("a", 0, 1),
        ("a", 2, 1),
        ("b", 0, 0),
        ("b", 1, 0),
    ]


def test_a_stamp_put_on_at_dispatch_does_not_split_a_run() -> None:
    rows = [row(0, 0), row(0, 1)]
    results = [result(0, 0, 1.0, _ng_environment_server="s"), result(0, 1, 0.0, _ng_environment_server="s")]
    groups, agents, _ = RewardProfiler().profile_from_data(rows, results)
    assert len(groups) == 1
    assert [agent["agent_ref"] for agent in agents] == [{"name": "solver"}]


def test_missing_tasks_of_a_repeat_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        profile([result(0, 0), result(1, 0), result(0, 1), result(1, 2)])
    assert [record.message for record in caplog.records] == [
        "2 of 3 repeats lack some tasks; their figures cover fewer tasks"
    ]


def test_equal_numbers_vary_by_exactly_nothing() -> None:
    (group,), (agent,), repeats = profile([result(0, repeat, 0.1) for repeat in range(10)])
    assert group["std/reward"] == agent["std/reward"] == 0.0
    assert group["mean/reward"] == agent["mean_across_repeats/mean/reward"] == 0.1
    assert [entry["sem/reward"] for entry in repeats] == [0.0] * 10


def test_alignment_pairs_by_key_in_row_order() -> None:
    rows, results = [row(1, 0), row(0, 0)], [result(0, 0), result(1, 0)]
    assert RewardProfiler().align_rows_and_results(rows, results) == [(rows[0], results[1]), (rows[1], results[0])]


@pytest.mark.parametrize(
    ("rows", "results", "message"),
    [
        ([row(0, 0), row(0, 0)], [result(0, 0)], "task 0, rollout 0 occurs more than once in the input rows"),
        ([row(0, 0)], [result(0, 0), result(0, 0)], "task 0, rollout 0 occurs more than once in the rollouts"),
        ([row(0, 0)], [result(0, 0), result(7, 1)], r"1 rollouts have no input row.*\(7, 1\)"),
        (
            [row(0, 0), row(2, 3)],
            [result(0, 0)],
            r"1 input rows have no rollout yet.*allow_partial_rollouts=True.*\(2, 3\)",
        ),
        ([row(0, 0)], [{"reward": 1.0, "_ng_task_index": 0}], "`_ng_rollout_index` is missing"),
        (
            [row(0, 0)],
            [{"_ng_task_index": "0", "_ng_rollout_index": 0}],
            "`_ng_task_index` must be an integer, not '0'",
        ),
    ],
)
def test_what_cannot_be_aligned(rows: Records, results: Records, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardProfiler().align_rows_and_results(rows, results)
    with pytest.raises(ValueError, match=message):
        RewardProfiler().profile_from_data(rows, results)


def test_no_more_than_ten_keys_are_named() -> None:
    with pytest.raises(ValueError, match=r"12 rollouts") as error:
        RewardProfiler().align_rows_and_results([], [result(task, 0) for task in range(12)])
    assert "(9, 0), …" in str(error.value)
    assert "(10, 0)" not in str(error.value)


def test_partial_rollouts_count_as_missing() -> None:
    rows = [row(0, 0), row(0, 1), row(1, 0), row(1, 1), row(2, 0)]
    results = [result(0, 0, 1.0), result(0, 1, 0.0), result(1, 1, 1.0)]
    profiler = RewardProfiler()
    assert len(profiler.align_rows_and_results(rows, results, allow_partial_rollouts=True)) == 3
    groups, _, _ = profiler.profile_from_data(rows, results, allow_partial_rollouts=True)
    completeness = [(g["num_rollouts"], g["expected_num_rollouts"], g["missing_num_rollouts"]) for g in groups]
    assert completeness == [(2, 2, 0), (1, 2, 1)]
    assert [g["reward_profile_completion_pct"] for g in groups] == [100.0, 50.0]


def test_completion_summary_counts_input_rows_by_task_and_run() -> None:
    rows = [row(0, 0), row(0, 1), row(1, 0), row(1, 1), row(2, 0), row(2, 1, "other")]
    results = [result(0, 0), result(0, 1), result(1, 1), result(2, 1), result(9, 9)]
    assert RewardProfiler().profile_completion_summary(rows, results) == {
        "expected_rollout_rows": 6,
        "completed_rollout_rows": 4,
        "missing_rollout_rows": 2,
        "extra_rollout_rows": 1,
        "reward_profile_completion_pct": pytest.approx(100 * 4 / 6),
        "total_input_rows": 4,
        "complete_input_rows": 2,
        "partial_input_rows": 1,
        "missing_input_rows": 1,
    }
    assert RewardProfiler().profile_completion_summary([], [])["reward_profile_completion_pct"] == 0.0


def test_masked_rollouts_are_set_aside_with_their_rows() -> None:
    rows = [row(0, 0), row(0, 1), row(1, 0), row(2, 0)]
    results = [result(0, 0, 1.0), result(0, 1, 0.0, mask_sample=True), result(1, 0, 0.0, mask_sample=True)]
    kept_rows, kept, masked, coverage = select_measured(rows, results)
    assert kept_rows == [rows[0], rows[3]]
    assert (kept, masked) == ([results[0]], results[1:])
    assert coverage == {
        "coverage/measured_rollouts": 1,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 1,
        "coverage/fully_masked_tasks": 1,
    }
    assert coverage_by_agent(rows, results) == {"solver": coverage}


def test_nothing_masked_means_no_coverage_block() -> None:
    rows, results = [row(0, 0)], [result(0, 0, mask_sample=False)]
    assert select_measured(rows, results) == (rows, results, [], {})
    assert coverage_by_agent(rows, results) == {}


def test_coverage_is_of_the_row_s_run() -> None:
    rows = [row(0, 0, "a"), row(0, 1, "b")]
    results = [result(0, 0), result(0, 1, mask_sample=True, agent_ref={"name": "x"})]
    assert list(coverage_by_agent(rows, results)) == ["b"]


def test_written_files_have_no_histograms(tmp_path: Path) -> None:
    entries = [{"mean/reward": 1.0, "histogram/reward": object()}]
    paths = RewardProfiler().write_to_disk(entries, entries, entries, tmp_path / "run.jsonl")
    assert [path.name for path in paths] == [
        "run_reward_profiling.jsonl",
        "run_agent_metrics.json",
        "run_repeat_level_metrics.json",
    ]
    assert [path.read_text() for path in paths] == [
        '{"mean/reward":1.0}\n',
        '[{"mean/reward":1.0}]',
        '[{"mean/reward":1.0}]',
    ]
