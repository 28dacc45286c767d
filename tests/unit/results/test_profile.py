from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError
from nemo_gym.errors import GymError
from nemo_gym.results.profile import ProfileFiles, profile
from nemo_gym.reward_profile import RewardProfiler
from tests.unit.results.rollouts import result, row

Records = list[dict[str, Any]]


def lines(records: Records) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return tmp_path / "run_materialized_inputs.jsonl"


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def groups_of(files: ProfileFiles) -> Records:
    return [json.loads(line) for line in files.reward_profiling.read_text().splitlines()]


def test_files_hold_what_the_profiler_computes(inputs: Path, rollouts: Path) -> None:
    rows = [row(task, repeat, ["a", "b"][task % 2]) for task in range(3) for repeat in range(2)]
    results = [result(r["_ng_task_index"], r["_ng_rollout_index"], i / 4, steps=i) for i, r in enumerate(rows)]
    inputs.write_bytes(lines(rows))
    rollouts.write_bytes(lines(results[::-1]))
    files = profile(inputs, rollouts)
    groups, agents, repeats = RewardProfiler().profile_from_data(rows, results)
    assert groups_of(files) == groups
    assert json.loads(files.agent_metrics.read_text()) == agents
    assert json.loads(files.repeat_level_metrics.read_text()) == repeats
    assert files.completion["completed_rollout_rows"] == 6
    assert {path.name for path in rollouts.parent.iterdir()} == {
        "run.jsonl",
        "run_materialized_inputs.jsonl",
        "run_reward_profiling.jsonl",
        "run_agent_metrics.json",
        "run_repeat_level_metrics.json",
    }


def test_byte_order_marks_blank_lines_and_carriage_returns(inputs: Path, rollouts: Path) -> None:
    inputs.write_bytes(b"\xef\xbb\xbf" + lines([row(0, 0)]).replace(b"\n", b"\r\n") + b"\r\n  \n" + lines([row(1, 0)]))
    rollouts.write_bytes(b"\n" + lines([result(0, 0, 1.0)]) + b"\n" + lines([result(1, 0, 0.0)]).rstrip())
    assert [group["sample"]["question"] for group in groups_of(profile(inputs, rollouts))] == ["q0", "q1"]


def test_masked_rollouts_are_measured_by_coverage_alone(inputs: Path, rollouts: Path) -> None:
    rows = [row(0, 0, "a"), row(0, 1, "a"), row(1, 0, "b")]
    inputs.write_bytes(lines(rows))
    rollouts.write_bytes(
        lines([result(0, 0, 1.0), result(0, 1, 0.0, mask_sample=True), result(1, 0, 0.0, mask_sample=True)])
    )
    files = profile(inputs, rollouts)
    agents = json.loads(files.agent_metrics.read_text())
    assert [agent["agent_ref"]["name"] for agent in agents] == ["a", "b"]
    assert agents[0]["mean/reward"] == 1.0
    assert agents[0]["coverage/masked_rollouts"] == 1
    assert agents[1] == {
        "agent_ref": {"name": "b"},
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 1,
    }
    (group,) = groups_of(files)
    assert (group["num_rollouts"], group["expected_num_rollouts"]) == (1, 1)
    assert files.completion["completed_rollout_rows"] == 3


def test_an_unfinished_run_is_profiled_on_request(inputs: Path, rollouts: Path) -> None:
    inputs.write_bytes(lines([row(0, 0), row(0, 1), row(1, 0)]))
    rollouts.write_bytes(lines([result(0, 1, 1.0)]))
    with pytest.raises(GymError, match=r"2 input rows have no rollout yet.*\+\+allow_partial_rollouts=True"):
        profile(inputs, rollouts)
    assert not (rollouts.parent / "run_agent_metrics.json").exists()
    files = profile(inputs, rollouts, allow_partial=True)
    (group,) = groups_of(files)
    assert (group["_ng_task_index"], group["missing_num_rollouts"]) == (0, 1)
    assert files.completion["missing_rollout_rows"] == 2


@pytest.mark.parametrize("missing", ["inputs", "rollouts"])
def test_a_missing_file_is_named_with_its_flag(inputs: Path, rollouts: Path, missing: str) -> None:
    inputs.write_bytes(lines([row(0, 0)]))
    rollouts.write_bytes(lines([result(0, 0)]))
    path = {"inputs": inputs, "rollouts": rollouts}[missing]
    path.unlink()
    with pytest.raises(ConfigPathNotFoundError, match=f"--{missing}: there is no file {path}"):
        profile(inputs, rollouts)


def test_a_folder_is_no_file(inputs: Path, rollouts: Path) -> None:
    inputs.mkdir()
    with pytest.raises(ConfigError, match="--inputs: can't read"):
        profile(inputs, rollouts)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": 1', "malformed JSON"),
        (b"[1]", "expected a JSON object, found list"),
        (b'{"_ng_task_index": 0}', "`_ng_rollout_index` is missing"),
        (b'{"_ng_task_index": 1.5, "_ng_rollout_index": 0}', "`_ng_task_index` must be an integer, not 1.5"),
        (b"\xff", "malformed JSON"),
    ],
)
@pytest.mark.parametrize("broken", ["inputs", "rollouts"])
def test_an_unusable_line_is_named(inputs: Path, rollouts: Path, line: bytes, problem: str, broken: str) -> None:
    inputs.write_bytes(lines([row(0, 0)]))
    rollouts.write_bytes(lines([result(0, 0)]))
    path = {"inputs": inputs, "rollouts": rollouts}[broken]
    path.write_bytes(path.read_bytes() + b"\n" + line + b"\n")
    with pytest.raises(ConfigError, match=rf"{path}:3 \(--{broken}\): {problem}"):
        profile(inputs, rollouts)


def test_empty_files_give_empty_profiles(inputs: Path, rollouts: Path) -> None:
    inputs.write_bytes(b"")
    rollouts.write_bytes(b"")
    files = profile(inputs, rollouts)
    assert groups_of(files) == []
    assert files.agent_metrics.read_text() == files.repeat_level_metrics.read_text() == "[]"


def test_an_unwritable_place_is_one_sentence(inputs: Path, rollouts: Path) -> None:
    inputs.write_bytes(lines([row(0, 0)]))
    rollouts.write_bytes(lines([result(0, 0)]))
    (rollouts.parent / "run_reward_profiling.jsonl").mkdir()
    with pytest.raises(ConfigError, match=r"can't write .*run_reward_profiling\.jsonl"):
        profile(inputs, rollouts)
    assert not [path for path in rollouts.parent.iterdir() if path.name.startswith(".")]
