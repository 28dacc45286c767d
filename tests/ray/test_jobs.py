"""Ray Jobs against a head that the CLI's own venv runs, as NVFlow's three-cluster path uses them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import is_alive
from tests.mock_provider import MockProvider
from tests.ray.head import JobHead, job_head
from tests.ray.runs import AGENT, counting_row
from tests.ray.test_placement import wait_until_gone
from tests.ray.test_trainer import settings

PROGRAM = Path(__file__).with_name("job") / "job.py"
ROWS = 4


@pytest.fixture(scope="module")
def head() -> Iterator[JobHead]:
    """Its jobs are stopped by INT unless they say otherwise."""
    with job_head(RAY_JOB_STOP_SIGNAL="SIGINT") as made:
        yield made


@pytest.mark.parametrize(
    ("job", "variables", "placement"),
    [("j1", {}, "process"), ("j2", {"RAY_JOB_STOP_SIGNAL": "SIGTERM"}, "ray")],
    ids=["stopped by INT", "stopped by TERM, servers as actors"],
)
def test_a_job_starts_servers_collects_and_is_stopped(
    head: JobHead, provider: MockProvider, tmp_path: Path, job: str, variables: dict[str, str], placement: str
) -> None:
    """The spec's `ray job submit --working-dir … -- python job.py` with `ray_head_node_address: auto`."""
    shutil.copy(PROGRAM, tmp_path)
    chosen = settings(provider, ray_head_node_address="auto", placement=placement)
    (tmp_path / "settings.json").write_text(json.dumps(chosen))
    agent = {"agent_ref": {"type": "responses_api_agents", "name": AGENT}}
    rows = [counting_row(number) | agent for number in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ("--runtime-env-json", json.dumps({"env_vars": variables})) if variables else ()
    told = head.job(
        *(
            "submit",
            "--no-wait",
            "--submission-id",
            job,
            "--working-dir",
            str(tmp_path),
            *more,
            "--",
            "python",
            "job.py",
        )
    )
    assert f"Job '{job}' submitted successfully" in told, told
    log = head.wait_for(job, "PIDS", "Traceback", "Error")
    assert re.findall(r"REWARDS (.*)", log) == [json.dumps([1.0] * ROWS)], log
    pids = list(json.loads(re.findall(r"PIDS (.*)", log)[0]).values())
    assert len(pids) == 3 and all(map(is_alive, pids))
    assert "was stopped" in head.job("stop", job)
    wait_until_gone(pids)
    assert "ENDED IN ORDER" in head.log(job)
