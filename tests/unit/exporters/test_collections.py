"""A whole collection, as a tracker sees it."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym import rollout_collection
from nemo_gym.exporters import get_exporters, setup_exporters
from nemo_gym.rollouts.errors import IncompleteRunError
from tests.unit.exporters.conftest import DIARY, Diary
from tests.unit.rollouts.fakes import FakeClient, FakeReply, collect, collection_config, right, served, task

ROWS = [task(f"q{number}", number=number) for number in range(4)]


def half_fails(row: dict[str, Any]) -> Any:
    return FakeReply(b"no", status=400) if row["number"] % 2 else right(row)


def sent() -> dict[str, Any]:
    """Everything that was sent, the last value of each name."""
    return {name: value for metrics, _ in Diary.last.metrics for name, value in metrics.items()}


async def test_progress_records_metrics_and_coverage_are_sent(tmp_path: Path) -> None:
    setup_exporters(DIARY)
    await collect(collection_config(tmp_path, ROWS, agent_name="math_agent"), half_fails)
    metrics = sent()
    assert metrics["progress/math_agent/reward"] == 100.0 and metrics["progress/math_agent/failed"] == 2
    assert metrics["key_metrics/math_agent/mean/reward"] == 1.0
    assert {name: metrics[f"coverage/{name}"] for name in ("expected", "scored", "missing")} == {
        "expected": 4,
        "scored": 2,
        "missing": 2,
    }
    assert "coverage/imputed" not in metrics
    assert sorted(record["_ng_task_index"] for record in Diary.last.rollouts) == [0, 1, 2, 3]


async def test_records_stay_here_when_asked_and_zeros_are_counted(tmp_path: Path) -> None:
    setup_exporters(DIARY)
    options = {"upload_rollouts": False, "count_missing_rollouts_as_zero": True}
    await collect(collection_config(tmp_path, ROWS, agent_name="math_agent", **options))
    assert Diary.last.rollouts == [] and sent()["coverage/imputed"] == 0


async def test_an_incomplete_run_is_sent_before_it_fails(tmp_path: Path) -> None:
    setup_exporters(DIARY)
    config = collection_config(tmp_path, ROWS, agent_name="math_agent", require_complete=True)
    with pytest.raises(IncompleteRunError):
        await collect(config, half_fails)
    assert len(Diary.last.rollouts) == 4 and sent()["coverage/missing"] == 2


async def test_without_a_tracker_nothing_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.rollout_export._send", None)
    await collect(collection_config(tmp_path, ROWS, agent_name="math_agent"))


def test_a_command_opens_the_trackers_for_its_collection_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: FakeClient(served(), right))
    monkeypatch.setattr("nemo_gym.global_config._GLOBAL_CONFIG_DICT", OmegaConf.create(DIARY))
    masked = OmegaConf.create({**DIARY, "diary_key": "****"})
    rollout_collection.run_collection(collection_config(tmp_path, ROWS, agent_name="math_agent"), masked, argv=[])
    assert len(Diary.last.rollouts) == 4
    assert Diary.last.closed == 1 and get_exporters() == []
