"""Servers whose event loop is held by code that never awaits, by the real command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Workplace
from tests.mock_provider import MockProvider, Reply

NAME = "spin.py"
SOURCE = """\
import time

from nemo_gym.environment_server import Environment

env = Environment(
    tasks=[{"question": f"How long is {n}?", "seconds": 0.0} for n in range(5)] + [{"question": "On?", "seconds": 1e9}],
    prompt="{question}",
)


@env.verify
async def verify(task, response):
    end = time.monotonic() + task["seconds"]
    while time.monotonic() < end:
        pass
    return 1.0
"""
RUN = ("eval", "run", NAME, "--model-type", "openai_model", "-o", "r.jsonl")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with MockProvider(Reply(text="Long.")) as mock:
        workplace = Workplace(tmp_path)
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="k", policy_model_name="mock")
        (tmp_path / NAME).write_text(SOURCE)
        yield workplace


@pytest.mark.parametrize("placement", ["process", "shared"])
def test_a_verifier_that_holds_its_server_costs_its_own_rollout_and_no_other(place: Workplace, placement: str) -> None:
    """A4, B35: the server is ended and started again, the rollout failed as the verifier's, and not tried again."""
    options = (f"+placement={placement}", "+placement_shards=1", "+server_stuck_timeout_s=4")
    ended = place.gym(*RUN, *options, "--concurrency", "3")
    assert ended.code == 0, ended.err
    assert "6 asked: 5 measured, 1 failed (verifier 1), 0 unknown" in ended.out + ended.err
    (failure,) = place.read_rows("r_failures.jsonl")
    assert (failure["_ng_task_index"], failure["_ng_failure_class"]) == (5, "verifier_error")
    told = "had its event loop held for "
    assert ended.err.count(told) == 1, ended.err
    line = next(line for line in ended.err.splitlines() if told in line)
    assert f"for rollout 5-0 by /verify of spin_resources_server, at {place.folder / NAME}:1" in line
    assert "+server_stuck_timeout_s=N" in line and "a plain `def` runs in a thread" in line
