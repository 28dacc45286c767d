"""Checking files of rollouts."""

from __future__ import annotations

import json
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import GymError
from nemo_gym.health import engine
from nemo_gym.rollout_health import (
    format_health_report,
    health_check_run_dir,
    normalize_ignored_checks,
    run_health_checks,
)
from tests.unit.health.records import call, gaps, read, record, trajectory, turn, write

FAILED = trajectory(model_calls=[call(status_code=503)])
UNSEEN = trajectory(gaps=gaps("model_calls_unavailable"))


def summary(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "quality_summary.json").read_text())
    return content


def test_both_files_are_written(tmp_path: Path) -> None:
    records = [record(1, 0, FAILED, _ng_rollout_id="given"), record(0, 1), record(0, 0, UNSEEN, stage_index=2)]
    result = run_health_checks(write(tmp_path / "r.jsonl", records))
    assert result.summary == summary(tmp_path)
    assert result.verdicts == {"healthy": 1, "unhealthy": 1, "unobserved": 1}
    assert result.summary["run"]["artifacts"] | {"coverage": None} == {"records": 3, "captures": 3, "coverage": None}
    assert result.summary["run"]["issues"] == {
        "rollout_ended_on_failed_model_call": 1,
        "model_call_failed": 1,
        "task_no_successful_model_calls": 1,
    }
    assert result.summary["run"]["stats"] == {
        "model_call_errors": {"total": 1, "by_status": {"503": 1}, "rollouts_affected": 1, "ended_on_error": 1},
        "duplicated_calls": {"replayed": 0, "rollouts": 0},
        "tokens": {"prompt": 30, "completion": 15, "capture_prompt": 30, "capture_completion": 15},
    }
    assert result.summary["tasks"]["0"] == {"repeats": 2, "healthy": 1, "unhealthy": 0, "unobserved": 1, "flags": []}
    first, second, third = read(tmp_path / "rollout_verdicts.jsonl")
    assert first | {"unobserved": None} == {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "rollout_id": "t-r",
        "verdict": "unobserved",
        "findings": [],
        "unobserved": None,
        "stage_index": 2,
    }
    assert second["verdict"] == "healthy"
    assert "stage_index" not in second
    assert (third["rollout_id"], third["verdict"]) == ("given", "unhealthy")
    assert third["findings"][0]["check"] == "rollout_ended_on_failed_model_call"
    assert "locator" not in third["findings"][0]


def test_coverage_counts_every_check(tmp_path: Path) -> None:
    records = [record(0, 0, UNSEEN), record(0, 1)]
    run_health_checks(write(tmp_path / "r.jsonl", records), ignored_checks=["agent_turn_hollow"])
    coverage = summary(tmp_path)["run"]["artifacts"]["coverage"]
    assert coverage["model_call_failed"] == {"evaluated": 1, "unobserved": 1, "ignored": 0}
    assert coverage["agent_turn_hollow"] == {"evaluated": 0, "unobserved": 0, "ignored": 2}
    assert coverage["record_unreadable"] == {"evaluated": 2, "unobserved": 0, "ignored": 0}
    assert coverage["task_consistently_unhealthy"] == {"evaluated": 0, "unobserved": 1, "ignored": 0}


def test_lines_that_can_not_be_read_are_rollouts_too(tmp_path: Path) -> None:
    invalid = record(3, 1, {"task_id": 5})
    run_health_checks(write(tmp_path / "r.jsonl", [record(), "", "{torn", "[1]", invalid]))
    known, invalid_line, torn, no_object = read(tmp_path / "rollout_verdicts.jsonl")
    assert known["verdict"] == "healthy"
    assert (invalid_line["_ng_task_index"], invalid_line["rollout_id"]) == (3, "3")
    assert "ng_trajectory.task_id" in invalid_line["findings"][0]["detail"]["error"]
    assert torn["_ng_task_index"] == "__unreadable_record__:input-0:line-3"
    assert "malformed JSON" in torn["findings"][0]["detail"]["error"]
    assert "not list" in no_object["findings"][0]["detail"]["error"]
    assert {line["verdict"] for line in (torn, no_object, invalid_line)} == {"unhealthy"}
    assert "model_call_failed" in torn["unobserved"]


def test_the_same_rollout_in_several_lines_is_flagged_and_counted_once(tmp_path: Path) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(path, [record(0, 0), record(0, 1), record(0, 2, stage_index=1)])
    write(other, [record(0, 0), record(0, 2)])
    result = run_health_checks([path, other], output_dir=tmp_path / "out")
    assert result.summary["run"]["issues"] == {"rollout_duplicate_identity": 2}
    assert [digest.findings[0].detail for digest in result.rollouts if digest.findings] == [{"duplicate_count": 2}] * 2
    assert result.summary["tasks"]["0"]["repeats"] == 4
    assert (tmp_path / "out" / "quality_summary.json").is_file()


def test_duplicates_that_disagree_are_unobserved(tmp_path: Path) -> None:
    ignored = ["rollout_duplicate_identity"]
    result = run_health_checks(write(tmp_path / "r.jsonl", [record(), record(path=FAILED)]), ignored_checks=ignored)
    assert result.summary["tasks"]["0"] | {"flags": []} == {
        "repeats": 1,
        "healthy": 0,
        "unhealthy": 0,
        "unobserved": 1,
        "flags": [],
    }


@pytest.mark.parametrize(
    ("paths", "flags"),
    [
        ([FAILED, FAILED], ["task_consistently_unhealthy", "task_no_successful_model_calls"]),
        ([FAILED, FAILED, UNSEEN], ["task_consistently_unhealthy"]),
        ([FAILED, UNSEEN], []),
        ([FAILED, None], []),
        ([FAILED], ["task_no_successful_model_calls"]),
        ([trajectory(turns=[turn(answer=None)])] * 2, ["task_consistently_unhealthy"]),
    ],
)
def test_tasks_are_flagged(tmp_path: Path, paths: list[Any], flags: list[str]) -> None:
    records = [record(7, number, path) for number, path in enumerate(paths)]
    result = run_health_checks(write(tmp_path / "r.jsonl", records))
    assert result.summary["tasks"]["7"]["flags"] == flags


def test_rollouts_are_ordered_with_numbers_before_names(tmp_path: Path) -> None:
    keys = [("b", 0), (10, 1), (2, 0), (10, 0)]
    run_health_checks(write(tmp_path / "r.jsonl", [record(*key) for key in keys]))
    lines = read(tmp_path / "rollout_verdicts.jsonl")
    assert [(line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines] == [
        (2, 0),
        (10, 0),
        (10, 1),
        ("b", 0),
    ]


def test_processes_say_what_one_says(tmp_path: Path) -> None:
    records = [record(number // 2, number % 2, FAILED if number % 3 else None) for number in range(130)]
    path = write(tmp_path / "r.jsonl", records)
    alone = run_health_checks(path, workers=1).rollouts
    assert run_health_checks(path, workers=2).rollouts == alone


def test_a_broken_pool_leaves_the_work_to_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise BrokenProcessPool("killed")

    monkeypatch.setattr(engine, "_in_processes", broken)
    path = write(tmp_path / "r.jsonl", [record(number, 0) for number in range(130)])
    with pytest.warns(RuntimeWarning, match="go on in one process: killed"):
        assert run_health_checks(path, workers=2).verdicts["healthy"] == 130


def test_ids_of_ignored_checks_are_read_and_checked() -> None:
    assert normalize_ignored_checks(" agent_turn_hollow,model_call_failed, agent_turn_hollow") == [
        "agent_turn_hollow",
        "model_call_failed",
    ]
    assert normalize_ignored_checks(None) == []
    with pytest.raises(ValueError, match="Did you mean `agent_turn_hollow`"):
        normalize_ignored_checks(["agent_turn_holow"])


def test_what_is_ignored_changes_verdicts(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [record(path=FAILED)])
    ignored = ["model_call_failed", "rollout_ended_on_failed_model_call", "task_no_successful_model_calls"]
    result = run_health_checks(path, ignored_checks=ignored)
    assert result.verdicts["healthy"] == 1
    assert result.summary["tasks"]["0"]["flags"] == []
    assert result.summary["run"]["ignored_checks"] == ignored


def test_a_run_s_folder_is_checked_by_its_usual_file(tmp_path: Path) -> None:
    write(tmp_path / "rollouts.jsonl", [record()])
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "other.jsonl", [record(path=FAILED)])
    assert health_check_run_dir(tmp_path).verdicts["healthy"] == 1
    other = health_check_run_dir(tmp_path, rollouts_file="sub/other.jsonl", ignored_checks="agent_turn_hollow")
    assert other.verdicts["unhealthy"] == 1
    assert other.summary_path == tmp_path / "quality_summary.json"


@pytest.mark.parametrize(("folder", "file", "message"), [("none", None, "no folder"), (".", "x", "no file")])
def test_what_is_not_there_is_named(tmp_path: Path, folder: str, file: str | None, message: str) -> None:
    with pytest.raises(GymError, match=message):
        health_check_run_dir(tmp_path / folder, rollouts_file=file)


def test_other_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(GymError, match="can't be read"):
        run_health_checks(tmp_path / "none.jsonl")
    with pytest.raises(GymError, match="no file"):
        run_health_checks([])
    with pytest.raises(GymError, match="at least 1"):
        run_health_checks(write(tmp_path / "r.jsonl", [record()]), workers=0)


def test_the_report_is_two_lines_or_one_where_nothing_was_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [record(), record(1, 0, FAILED)])
    result = run_health_checks(path, ignored_checks=["agent_turn_hollow"])
    assert format_health_report(result).splitlines() == [
        "Health: 2 rollouts checked, 1 healthy, 1 unhealthy, 0 unobserved (ignored: agent_turn_hollow).",
        f"Summary: {tmp_path / 'quality_summary.json'}",
    ]
    uncaptured = [record(number, 0, ng_trajectory=None) for number in range(3)]
    unseen = run_health_checks(write(tmp_path / "r.jsonl", uncaptured))
    assert format_health_report(unseen) == (
        "Health: 3 rollouts checked, nothing wrong in their records; model calls were not captured "
        "(observability_enabled), so there is no more to tell."
    )
    doubled = run_health_checks(write(tmp_path / "r.jsonl", [*uncaptured, uncaptured[0]]))
    told = format_health_report(doubled).splitlines()
    assert told[0] == "Health: 4 rollouts checked, 0 healthy, 2 unhealthy, 2 unobserved."
    assert "observability_enabled" in told[-1]


def test_runs_in_one_folder_keep_reports_of_their_own(tmp_path: Path) -> None:
    """The names without a run's are those of the last one, as other tools expect."""
    for name, recorded in (("a", record()), ("b", record(path=FAILED))):
        result = run_health_checks(write(tmp_path / f"{name}.jsonl", [recorded]), run=name)
        assert result.summary_path == tmp_path / f"{name}_quality_summary.json"
    of_a, of_b = (json.loads((tmp_path / f"{name}_quality_summary.json").read_text())["run"] for name in "ab")
    assert (of_a["files"], of_a["verdicts"]["healthy"]) == (["a.jsonl"], 1)
    assert (of_b["files"], of_b["verdicts"]["healthy"]) == (["b.jsonl"], 0)
    assert summary(tmp_path)["run"] == of_b
    assert read(tmp_path / "a_rollout_verdicts.jsonl")[0]["verdict"] == "healthy"
    assert read(tmp_path / "rollout_verdicts.jsonl") == read(tmp_path / "b_rollout_verdicts.jsonl")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
