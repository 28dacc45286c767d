"""Ray Jobs against a head that the CLI's own venv runs, as NVFlow's three-cluster path uses them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.harness import is_alive
from tests.mock_provider import MockProvider
from tests.ray.head import job_head
from tests.ray.runs import AGENT, counting_row
from tests.ray.test_placement import wait_until_gone
from tests.ray.test_trainer import settings

PROGRAM = Path(__file__).with_name("job") / "job.py"
ROWS = 4


@pytest.mark.parametrize(
    ("environment", "placement"),
    [({"RAY_JOB_STOP_SIGNAL": "SIGINT"}, "process"), ({}, "ray")],
    ids=["stopped by INT", "stopped by TERM, servers as actors"],
)
def test_a_job_starts_servers_collects_and_is_stopped(
    provider: MockProvider, tmp_path: Path, environment: dict[str, str], placement: str
) -> None:
    """The spec's `ray job submit --working-dir … -- python job.py` with `ray_head_node_address: auto`."""
    shutil.copy(PROGRAM, tmp_path)
    chosen = settings(provider, ray_head_node_address="auto", placement=placement)
    (tmp_path / "settings.json").write_text(json.dumps(chosen))
    agent = {"agent_ref": {"type": "responses_api_agents", "name": AGENT}}
    rows = [counting_row(number) | agent for number in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with job_head(**environment) as head:
        told = head.job(
            *("submit", "--no-wait", "--submission-id", "j1", "--working-dir", str(tmp_path), "--", "python", "job.py")
        )
        assert "Job 'j1' submitted successfully" in told, told
        log = head.wait_for("j1", "PIDS", "Traceback", "Error")
        assert re.findall(r"REWARDS (.*)", log) == [json.dumps([1.0] * ROWS)], log
        pids = list(json.loads(re.findall(r"PIDS (.*)", log)[0]).values())
        assert len(pids) == 3 and all(map(is_alive, pids))
        assert "was stopped" in head.job("stop", "j1")
        wait_until_gone(pids)
        assert "ENDED IN ORDER" in head.job("logs", "j1")
