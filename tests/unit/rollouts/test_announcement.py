"""A collection answers its user while it runs, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nemo_gym.rollouts.announcement import announced
from nemo_gym.rollouts.in_flight import InFlight
from nemo_gym.serve.control_socket import RefusedError, ask

CONFIG = {"head_server": {"host": "127.0.0.1", "port": 11000}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The collectors' folder of a run."""
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path))
    (tmp_path / "collectors").mkdir()
    return tmp_path / "collectors"


def test_what_is_in_flight_can_be_asked_for(folder: Path) -> None:
    """Gym#2859: also of a collection that uses somebody else's servers."""
    table, name = InFlight(), f"{os.getpid()}.sock"
    rows = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(3)]
    with announced(CONFIG), table.entry(rows[0], "env"), table.entry(rows[1], "env"), table.entry(rows[2], "env"):
        told = ask(folder, name, "rollouts", limit=2, seconds=20)
        assert told["pid"] == os.getpid()
        (found,) = [each for each in told["tables"] if each["counts"]["queued"] == 3]
        assert [entry["task"] for entry in found["entries"]] == [0, 1]
        with pytest.raises(RefusedError, match="there are: rollouts"):
            ask(folder, name, "cancel", seconds=20)
    assert list(folder.iterdir()) == []


def test_a_run_without_a_folder_here_is_collected_from_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path / "elsewhere"))
    with announced(CONFIG):
        assert not (tmp_path / "elsewhere").exists()
