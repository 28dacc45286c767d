"""What trackers hear of a collection while it runs and when it has ended."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.secrets import Redactor
from nemo_gym.exporters import setup_exporters
from nemo_gym.exporters.progress import Completed, ProgressExport, measured
from nemo_gym.exporters.results import send_coverage, send_metrics, send_rollouts
from tests.unit.exporters.conftest import DIARY, Diary


@pytest.fixture(autouse=True)
def opened() -> None:
    setup_exporters(DIARY)


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def record(task: int, reward: float = 0.0, agent: str = "a", **fields: Any) -> dict[str, Any]:
    identity = {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": agent}}
    return {**identity, "reward": reward, **fields}


def progress(tmp_path: Path, planned: int, *earlier: dict[str, Any]) -> ProgressExport:
    plan = lines(tmp_path / "plan.jsonl", *(record(task) for task in range(planned)))
    clock = iter([0.0, *[60.0] * 1000])
    return ProgressExport(plan, lines(tmp_path / "out.jsonl", *earlier), lambda: next(clock))


def last_of(key: str) -> Any:
    return [metrics[key] for metrics, _ in Diary.last.metrics if key in metrics][-1]


def test_each_percent_sends_rate_and_rewards(tmp_path: Path) -> None:
    with progress(tmp_path, 4) as export:
        for task, reward in enumerate([1.0, 0.0, 1.0]):
            export.completed(measured(record(task, reward)))
    metrics, step = Diary.last.metrics[-1]
    assert step == 75
    assert metrics == {
        "progress/total/rollouts_per_min": 3.0,
        "progress/a/reward": 66.67,
        "progress/a/reward_lower_bound": 50.0,
    }


def test_what_was_masked_failed_or_dropped_is_counted_apart(tmp_path: Path) -> None:
    with progress(tmp_path, 8) as export:
        export.completed(measured(record(0, 1.0)))
        export.completed(measured(record(1, 0.5, mask_sample=True)))
        export.completed(Completed("a", "failed", (2, 0)))
        export.completed(Completed("a", "omitted", (3, 0)))
    metrics, step = Diary.last.metrics[-1]
    assert step == 50
    assert {key.removeprefix("progress/a/"): value for key, value in metrics.items() if "/a/" in key} == {
        "reward": 75.0,
        "reward_lower_bound": 25.0,
        "masked_pct": 50.0,
        "reward_unmasked": 100.0,
        "failed": 1,
        "omitted": 1,
    }


def test_a_resumed_run_goes_on_from_what_is_on_file(tmp_path: Path) -> None:
    mine = record(2, 0.0)
    with progress(tmp_path, 4, record(0, 1.0), record(1, 1.0), mine) as export:
        export.completed(measured(mine))
    metrics, step = Diary.last.metrics[-1]
    assert step == 75 and metrics["progress/total/rollouts_per_min"] == 1.0
    assert (last_of("progress/a/reward"), last_of("progress/a/reward_lower_bound")) == (66.67, 50.0)


@pytest.mark.parametrize(("planned", "steps"), [(100, [1, 100]), (20_000, [0])])
def test_a_slow_tracker_holds_nobody_up_and_hears_of_each_percent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: int, steps: list[int]
) -> None:
    may_go_on, is_sending = threading.Event(), threading.Event()
    send = Diary._log_metrics

    def slow(self: Diary, metrics: Any, step: int | None) -> None:
        is_sending.set()
        may_go_on.wait()
        send(self, metrics, step)

    monkeypatch.setattr(Diary, "_log_metrics", slow)
    with progress(tmp_path, planned) as export:
        export.completed(measured(record(0)))
        is_sending.wait()
        for task in range(1, 100):
            export.completed(measured(record(task)))
        may_go_on.set()
    assert [step for _, step in Diary.last.metrics] == steps


def test_a_plan_that_is_gone_ends_the_reports_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressExport(tmp_path / "no.jsonl", tmp_path / "out.jsonl") as export:
        export.completed(measured(record(0)))
    assert "progress of the run is not sent any further" in capsys.readouterr().err


def test_metrics_of_a_run_are_sent_by_agent(tmp_path: Path) -> None:
    entry = {
        "agent_ref": {"name": "a"},
        "agent_metrics": {"mean/reward": 0.5, "per_sample": [1], "of": {}, "none": None, "kind": "x"},
        "key_metrics": {"mean/reward": 0.5},
        "group_level_metrics": [{"mean/reward": 1}],
    }
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps([entry]))
    send_metrics(path)
    assert Diary.last.metrics == [({"a/mean/reward": 0.5, "a/kind": "x", "key_metrics/a/mean/reward": 0.5}, None)]
    send_metrics(tmp_path / "none.json")
    assert len(Diary.last.metrics) == 1


def test_coverage() -> None:
    send_coverage(expected=10, scored=7)
    send_coverage(expected=10, scored=10, imputed=3)
    assert [metrics for metrics, _ in Diary.last.metrics] == [
        {"coverage/expected": 10, "coverage/scored": 7, "coverage/missing": 3},
        {"coverage/expected": 10, "coverage/scored": 10, "coverage/missing": 0, "coverage/imputed": 3},
    ]


def test_records_are_sent_without_payloads_and_secrets_and_failures_once(tmp_path: Path) -> None:
    call = {"id": 1, "request": {}, "response": {}, "request_raw": "", "response_raw": ""}
    output = lines(
        tmp_path / "out.jsonl",
        record(0, 1.0, ng_trajectory={"big": 1}, ng_model_call_capture={"calls": [call], "v": 1}, said="k is s3cret-k"),
    )
    failures = lines(
        tmp_path / "failures.jsonl",
        record(0, _ng_failure_class="x"),
        record(1, _ng_failure_class="x"),
        record(1, _ng_failure_class="y"),
    )
    send_rollouts(output, failures, Redactor(["s3cret-k"]))
    first, second = Diary.last.rollouts
    assert first == record(0, 1.0, ng_model_call_capture={"calls": [{"id": 1}], "v": 1}, said="k is ****")
    assert second == record(1, _ng_failure_class="y")
    send_rollouts(output, tmp_path / "none.jsonl", Redactor())
    assert len(Diary.last.rollouts) == 3
