from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from nemo_gym.config_types import AggregateMetrics
from nemo_gym.results.aggregate import BaseMetrics
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics
from tests.unit.results.rollouts import result

Tasks = list[list[dict[str, Any]]]


def test_an_empty_request_gets_the_defaults() -> None:
    assert compute_aggregate_metrics([]) == AggregateMetrics()


def test_missing_indices_are_zero() -> None:
    metrics = compute_aggregate_metrics([{"reward": 1.0}])
    assert metrics.group_level_metrics[0]["rollout_infos"][0]["rollout_id"] == "0:0"
    assert metrics.agent_metrics["num_repeats"] == 1
    assert metrics.repeat_level_metrics == []


def test_all_masked_leaves_coverage() -> None:
    metrics = compute_aggregate_metrics([result(0, 0, 1.0, mask_sample=True), result(1, 0, 1.0, mask_sample=1)])
    coverage = {
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 2,
    }
    assert metrics == AggregateMetrics(agent_metrics=coverage, key_metrics=coverage)


def test_masked_rollouts_count_as_repeats_alone() -> None:
    metrics = compute_aggregate_metrics([result(0, 0, 1.0), result(0, 1, 0.0, mask_sample=True)])
    assert metrics.agent_metrics["mean/reward"] == 1.0
    assert metrics.agent_metrics["num_repeats"] == 2
    assert metrics.repeat_level_metrics == []
    assert metrics.key_metrics["coverage/masked_rollouts"] == 1


def test_a_rollout_that_is_there_twice_covers_its_task_once() -> None:
    twice = [result(0, 0, 1.0), result(0, 0, 0.0), result(0, 1, 1.0), result(1, 1, 1.0)]
    repeats = compute_aggregate_metrics(twice).repeat_level_metrics
    assert [(entry["sample_count"], entry["missing_count"]) for entry in repeats] == [(1, 1), (2, 0)]


def test_unmasked_flags_are_no_metric() -> None:
    metrics = compute_aggregate_metrics([result(0, 0, 1.0, mask_sample=False)])
    assert metrics.key_metrics == {"mean/reward": 1.0}
    assert "mask_sample" not in metrics.group_level_metrics[0]["rollout_infos"][0]


def test_hooks_see_measured_tasks_in_order() -> None:
    seen: list[Tasks] = []

    def compute(tasks: Tasks) -> dict[str, Any]:
        seen.append(tasks)
        return {}

    responses = [
        result(3, 1, 0.5, tag="late", mask_sample=False),
        result(3, 0, 0.0, mask_sample=True),
        result(1, 0, 1.0),
        result(3, 2, 1.0),
    ]
    compute_aggregate_metrics(responses, compute)
    assert seen == [[[result(1, 0, 1.0)], [result(3, 1, 0.5, tag="late"), result(3, 2, 1.0)]]]
    assert responses[0]["mask_sample"] is False


def test_custom_metrics_overwrite_and_reach_their_tasks() -> None:
    def compute(tasks: Tasks) -> dict[str, Any]:
        return {
            "mean/reward": 42.0,
            "elo": {"a": 1},
            "broken": math.nan,
            "per_task_metrics": [{"_ng_task_index": 1, "hard": True}, {"_ng_task_index": 9, "hard": True}, {}],
        }

    metrics = compute_aggregate_metrics([result(0, 0, 0.0), result(1, 0, 1.0)], compute)
    assert metrics.agent_metrics["mean/reward"] == metrics.key_metrics["mean/reward"] == 42.0
    assert metrics.agent_metrics["elo"] == {"a": 1}
    assert not {"per_task_metrics", "broken"} & set(metrics.agent_metrics)
    assert [group.get("hard") for group in metrics.group_level_metrics] == [None, True]


def test_key_metrics_are_chosen_from_all() -> None:
    metrics = compute_aggregate_metrics(
        [result(0, 0, 1.0)], lambda tasks: {"elo": 3.0}, lambda agent_metrics: {"elo": agent_metrics["elo"]}
    )
    assert metrics.key_metrics == {"elo": 3.0}


def test_hooks_of_the_mixin_are_not_called() -> None:
    class Server(AggregateMetricsMixin):
        pass

    server = Server()
    responses = [result(0, 0, 1.0), result(0, 1, 0.0)]
    metrics = compute_aggregate_metrics(
        responses, server.compute_metrics, server.get_key_metrics, server.compute_repeat_metrics
    )
    assert metrics == compute_aggregate_metrics(responses)


def repeat_hook(tasks: Tasks) -> dict[str, Any]:
    rewards = [rollout["reward"] for task in tasks for rollout in task]
    repeat = tasks[0][0]["_ng_rollout_index"]
    return {"mean/reward": 100 * sum(rewards) / len(rewards), "elo": repeat, "odd": "text" if repeat else 1.0}


def test_repeat_hook_replaces_general_values_of_the_same_name() -> None:
    responses = [result(task, repeat, float(repeat)) for task in range(2) for repeat in range(2)]
    metrics = compute_aggregate_metrics(responses, compute_repeat_metrics_fn=repeat_hook)
    assert [entry["mean/reward"] for entry in metrics.repeat_level_metrics] == [0.0, 100.0]
    assert [entry["elo"] for entry in metrics.repeat_level_metrics] == [0.0, 1.0]
    assert all(isinstance(entry["elo"], float) for entry in metrics.repeat_level_metrics)
    assert metrics.agent_metrics["mean_across_repeats/mean/reward"] == 50.0
    assert metrics.agent_metrics["max_across_repeats/elo"] == 1.0
    assert metrics.agent_metrics["mean/reward"] == 0.5


def test_values_that_are_not_finite_in_every_repeat_are_left_out() -> None:
    responses = [result(task, repeat, float(repeat)) for task in range(2) for repeat in range(2)]
    metrics = compute_aggregate_metrics(responses, compute_repeat_metrics_fn=repeat_hook)
    assert not any("odd" in entry for entry in metrics.repeat_level_metrics)
    assert "mean_across_repeats/odd" not in metrics.agent_metrics


def test_general_values_make_way_for_custom_ones_that_are_not_usable() -> None:
    responses = [result(0, repeat, float(repeat)) for repeat in range(2)]
    metrics = compute_aggregate_metrics(responses, compute_repeat_metrics_fn=lambda tasks: {"mean/reward": math.nan})
    assert not any("mean/reward" in entry for entry in metrics.repeat_level_metrics)
    assert not any(name.endswith("across_repeats/mean/reward") for name in metrics.agent_metrics)
    assert metrics.repeat_level_metrics[1]["max/reward"] == 1.0


def test_a_full_run_value_that_is_no_number_keeps_its_repeats_out() -> None:
    responses = [result(0, repeat, float(repeat)) for repeat in range(2)]
    metrics = compute_aggregate_metrics(
        responses, lambda tasks: {"elo": "unknown"}, compute_repeat_metrics_fn=lambda tasks: {"elo": 1.0}
    )
    assert not any("elo" in entry for entry in metrics.repeat_level_metrics)
    assert metrics.agent_metrics["elo"] == "unknown"


def test_an_index_that_is_no_integer_is_refused() -> None:
    with pytest.raises(ValueError, match="`_ng_task_index` must be an integer, not True"):
        compute_aggregate_metrics([{"_ng_task_index": True, "reward": 1.0}])


def test_base_metrics_from_a_stream_equal_those_of_the_whole() -> None:
    responses = [result(task, repeat, (task * repeat) % 3 / 2) for task in range(4) for repeat in range(3)]
    stream = BaseMetrics()
    for response in responses:
        stream.add(response)
    whole = compute_aggregate_metrics(responses)
    assert list(stream.groups()) == whole.group_level_metrics
    assert stream.repeats() == whole.repeat_level_metrics
    assert stream.agent_metrics().items() <= whole.agent_metrics.items()


def test_many_groups_come_in_blocks_and_none_is_split() -> None:
    stream = BaseMetrics()
    for task in range(50_000):
        stream.add(result(task, 0, 1.0))
        stream.add(result(task, 1, 0.0))
    groups = list(stream.groups())
    assert [group["_ng_task_index"] for group in groups] == list(range(50_000))
    assert {(group["num_rollouts"], group["mean/reward"]) for group in groups} == {(2, 0.5)}


def test_servers_load_no_arrays_before_they_aggregate() -> None:
    code = "import sys, nemo_gym.reward_profile; print({'numpy', 'pandas', 'scipy', 'wandb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
