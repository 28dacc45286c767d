"""Parts with rules of their own: options, budget, key sets, tails, migration, drivers, shared models."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym import rollout_collection
from nemo_gym.config.errors import ConfigError
from nemo_gym.deliverables import IGNORE_FILES, is_deliverable
from nemo_gym.rollout_collection import (
    DispatchLatencyTracker,
    E2ERolloutCollectionConfig,
    RolloutAggregationConfig,
    RolloutCollectionConfig,
    migrate_invalid_judge_main_rows,
    run_collection,
)
from nemo_gym.rollout_outcomes import RolloutFailure
from nemo_gym.rollouts.budget import Budget
from nemo_gym.rollouts.keyset import RolloutKeys
from nemo_gym.rollouts.numbering import RepeatCounters, TaskNumbers
from nemo_gym.rollouts.tail import repair_tail
from tests.unit.rollouts.fakes import collection_config, read_jsonl, write_jsonl

PATHS = {"input_jsonl_fpath": "i", "output_jsonl_fpath": "o"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agent_name": "a", "agent_map": {"_default": "b"}}, "agent_name is a but agent_map sends"),
        ({"fan_out": {"a": []}}, "fan_out.a is empty"),
        ({"fan_out": {"a": ["x", "x"]}}, "fan_out.a names an agent twice"),
        ({"num_repeats": 0}, "greater than or equal to 1"),
        ({"num_repeats": {"a": 0}}, "greater than or equal to 1"),
        ({"dispatch_budget_s": 0.0}, "dispatch_budget_s needs num_samples_in_parallel"),
        ({"num_samples_in_parallel": 0}, "greater than 0"),
        ({"environment_routing_mode": "legacy"}, "needs environment_server_name"),
        ({"environment_routing_mode": "taskset"}, "needs environment_server_routes; with --no-serve too .* --config"),
        ({"overwrite": True, "resume_from_cache": True}, "exclude each other"),
    ],
)
def test_options_that_contradict_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RolloutCollectionConfig.model_validate({**PATHS, **fields})


def test_options_are_read_as_they_are_written() -> None:
    config = RolloutCollectionConfig.model_validate(
        {
            **PATHS,
            "agent_name": "a",
            "agent_map": {"x": "y"},
            "num_repeats": None,
            "health_check_ignored_checks": "one, two",
            "unknown": 1,
        }
    )
    assert config.agent_map == {"x": "y", "_default": "a"}
    assert config.num_repeats == 1
    assert config.health_check_ignored_checks == ["one", "two"]
    assert config.materialized_jsonl_fpath == Path("o_materialized_inputs.jsonl")
    assert config.keeps_failures_as_rows
    declined = RolloutCollectionConfig.model_validate({**PATHS, "route_failures_to_sidecar": False})
    assert not declined.keeps_failures_as_rows


def test_options_are_taken_out_of_the_global_config() -> None:
    from omegaconf import OmegaConf

    config = OmegaConf.create(
        {
            **PATHS,
            "elsewhere": "${nothing.there}",
            "names": ["x", "y"],
            "fan_out": {"a": "${names}"},
            "health_check_ignored_checks": ["one"],
            "responses_create_params": {"metadata": {"k": "${output_jsonl_fpath}"}},
            "upload_rollouts_to_wandb": False,
        }
    )
    with pytest.warns(DeprecationWarning, match="upload_rollouts"):
        taken = RolloutCollectionConfig.model_validate(config)
    assert taken.fan_out == {"a": ["x", "y"]}
    assert taken.health_check_ignored_checks == ["one"]
    assert taken.responses_create_params == {"metadata": {"k": "o"}}
    assert taken.upload_rollouts is False


def test_the_end_to_end_config_points_to_the_other_commands() -> None:
    from omegaconf import OmegaConf

    for values in ({"input_jsonl_fpath": "x"}, OmegaConf.create({"input_jsonl_fpath": "x"})):
        with pytest.raises(ConfigError, match="add --no-serve"):
            E2ERolloutCollectionConfig.model_validate(values)
    with pytest.raises(ConfigError, match="gym eval run --no-serve"):
        E2ERolloutCollectionConfig.model_validate({"output_jsonl_fpath": "o", "split": "example"})
    assert E2ERolloutCollectionConfig.model_validate({"output_jsonl_fpath": "o", "split": "train"}).split == "train"
    with pytest.raises(ValidationError):
        RolloutAggregationConfig.model_validate({"input_glob": "x"})


def test_durations_are_summed_up() -> None:
    tracker = DispatchLatencyTracker()
    assert tracker.quantile(0.5) is None
    assert tracker.drain_margin(7.0) == 7.0
    for seconds in (60.0, 0.0, -3.0, 120.0, 180.0, 240.0):
        tracker.record(seconds)
    assert tracker.drain_margin(None) is None, "four say too little"
    tracker.record(300.0)
    assert (tracker.quantile(0.5), tracker.quantile(0.9), tracker.drain_margin(None)) == (180.0, 276.0, 240.0)
    tracker.record_drained()
    assert tracker.drained == 1
    assert tracker.summary() == (
        "Dispatch: 5 completed, minutes: median 3.0, p90 4.6, p99 5.0, max 5.0; 0.25 task-hours; 1 drained"
    )


def test_many_durations_are_sampled_evenly() -> None:
    tracker = DispatchLatencyTracker()
    for number in range(1, 40_001):
        tracker.record(float(number))
    median = tracker.quantile(0.5)
    assert median is not None and 18_000 < median < 22_000
    assert "40000 completed" in tracker.summary() and "max 666.7" in tracker.summary()


def test_a_budget_keeps_its_margin_free() -> None:
    now = [0.0]
    tracker = DispatchLatencyTracker()
    budget = Budget(100.0, None, tracker, now=lambda: now[0])
    assert not budget.is_spent()
    now[0] = 95.0
    assert not budget.is_spent()
    for _ in range(5):
        tracker.record(10.0)
    assert budget.is_spent(), "what remains is less than three of four rollouts need"
    assert not Budget(None, 5.0, tracker).is_spent()
    assert Budget(0.0, None, DispatchLatencyTracker(), now=lambda: 0.0).is_spent(), "0 is a spent budget"
    assert Budget(100.0, 101.0, DispatchLatencyTracker(), now=lambda: 0.0).is_spent()


def test_key_sets_know_what_was_added() -> None:
    keys = RolloutKeys()
    added = [(0, 0), (1023, 0), (1024, 0), (5, 3), (10**12, 7)]
    assert [keys.add(key) for key in [*added, (5, 3)]] == [True] * 5 + [False]
    assert len(keys) == 5
    assert all(key in keys for key in added)
    assert not any(key in keys for key in [(1, 0), (0, 3), (5, 2), (10**12, 6)])


def test_key_sets_take_many_keys_as_they_take_one() -> None:
    keys, many = RolloutKeys(), [(0, 0), (1023, 0), (0, 0), (1024, 0), (1023, 0), (10**12, 7)]
    keys.add((1024, 0))
    assert keys.lacking(many) == [0, 1, 2, 4, 5]
    assert keys.add_all(many) == [True, True, False, False, False, True]
    assert keys.lacking([*many, (1, 0), (0, 7)]) == [6, 7]
    assert len(keys) == 4 and keys.discard((1023, 0)) and keys.lacking(many) == [1, 4]


def test_repeat_counters_of_any_task_number() -> None:
    counters = RepeatCounters()
    for task in (3, 10**9):
        assert list(counters.take(task, 2)) == [0, 1]
        assert list(counters.take(task, 1)) == [2]
        assert list(counters.take(task, 1)) == [3]
    assert list(counters.take(0, 1)) == [0]


def test_numbers_of_texts_survive_growth() -> None:
    numbers = TaskNumbers()
    texts = [str(number).encode() for number in range(3000)]
    assert [numbers.of(text) for text in texts] == list(range(3000))
    assert [numbers.of(text) for text in reversed(texts)] == list(reversed(range(3000)))


@pytest.mark.parametrize(
    ("content", "after", "dropped"),
    [
        (b"", b"", 0),
        (b'{"a":1}\n', b'{"a":1}\n', 0),
        (b'{"a":1}\n{"b"', b'{"a":1}\n', 4),
        (b'{"a":1}\n{"b":2}', b'{"a":1}\n{"b":2}\n', 0),
        (b'{"a"', b"", 4),
        (b"x" * (3 << 20), b"", 3 << 20),
        (b'{"a":1}\n' + b'"' + b"y" * (2 << 20), b'{"a":1}\n', (2 << 20) + 1),
        (b'"' + b"y" * (2 << 20) + b'"\n{"t"', b'"' + b"y" * (2 << 20) + b'"\n', 4),
    ],
)
def test_tails_are_made_whole(tmp_path: Path, content: bytes, after: bytes, dropped: int) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    assert repair_tail(path) == dropped
    assert path.read_bytes() == after


def judged(task: int, **fields: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "reward": 0.0, **fields}


def test_a_migration_that_was_cut_off_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = write_jsonl(
        tmp_path / "x.jsonl", [judged(0), judged(1, invalid_judge_response=True, _ng_failure_terminal=True)]
    )
    output.chmod(0o640)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            migrate_invalid_judge_main_rows(output)
    assert len(read_jsonl(output)) == 2
    assert migrate_invalid_judge_main_rows(output) == 1
    assert migrate_invalid_judge_main_rows(output) == 0
    assert read_jsonl(output) == [judged(0)]
    (moved,) = read_jsonl(tmp_path / "x_failures.jsonl")
    assert moved["reuse_cached_deliverable"] is False
    assert "_ng_failure_terminal" not in moved
    assert output.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.jsonl", "x_failures.jsonl"]


def test_deliverables_are_files_that_are_not_the_harness_own(tmp_path: Path) -> None:
    (tmp_path / "report.docx").touch()
    (tmp_path / "log.txt").touch()
    (tmp_path / "folder").mkdir()
    assert [path.name for path in sorted(tmp_path.iterdir()) if is_deliverable(path)] == ["report.docx"]
    assert "reference_files" in IGNORE_FILES


def test_a_driver_collects_in_gyms_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    module = ModuleType("some_driver")

    async def drive(config: Any, global_config: Any) -> None:
        calls.append((config, global_config))

    module.drive = drive  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_driver", module)
    from omegaconf import OmegaConf

    config = collection_config(tmp_path, [], rollout_collection_driver="some_driver:drive")
    run_collection(config, OmegaConf.create({"a": 1, "b": "${a}"}))
    assert calls == [(config, {"a": 1, "b": 1})]
    for spec, message in (
        ("some_driver", "must read module.path:function"),
        ("some_driver:nope", "has no function nope"),
        ("no_such_module:x", "can't be imported"),
    ):
        broken = collection_config(tmp_path, [], rollout_collection_driver=spec)
        with pytest.raises(ConfigError, match=message):
            run_collection(broken, OmegaConf.create({}))


def test_moved_names_say_where_they_went() -> None:
    with pytest.warns(DeprecationWarning, match="is now nemo_gym.cli.eval.collect_rollouts"):
        from nemo_gym.cli import eval as commands

        assert rollout_collection.collect_rollouts is commands.collect_rollouts
    with pytest.raises(AttributeError):
        _ = rollout_collection.nothing_of_this_name


def test_a_rollout_failure_from_the_environment_was_delivered() -> None:
    fields: dict[str, Any] = {
        "episode_id": {"rollout_id": "1-0"},
        "run_id": "r",
        "source": "collector",
        "delivery": "not_sent",
        "failure": {"failure_reason": "why", "terminal": False},
    }
    assert RolloutFailure.model_validate(fields).schema_version == 1
    with pytest.raises(ValidationError):
        RolloutFailure.model_validate({**fields, "source": "environment"})
    with pytest.raises(ValidationError):
        RolloutFailure.model_validate({**fields, "extra": 1})
    with pytest.raises(ValidationError):
        RolloutFailure.model_validate({**fields, "http_status": 42})


@pytest.mark.parametrize(
    ("row", "identity"),
    [
        ({"task_id": "t", "problem_id": "p", "_ng_task_index": 3, "_ng_rollout_index": 1}, ("t", "3-1")),
        ({"task_id": None, "instance_id": 5, "_ng_task_index": 3, "_ng_rollout_index": 1}, ("5", "3-1")),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, ("3", "3-1-a2")),
        ({"task_id": {"taskset": "ts", "task_id": "q"}, "_ng_rollout_id": "mine"}, ("q", "mine")),
    ],
)
def test_the_names_a_trajectory_gives(row: dict[str, Any], identity: tuple[str, str]) -> None:
    assert rollout_collection._trajectory_identity(row) == identity
