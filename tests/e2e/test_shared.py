"""Servers that share processes, by the real command line."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.harness import Background, Workplace, is_alive, question
from tests.mock_provider import MockProvider, Reply

START = ("env", "start", "--resources-server", "mcqa", "--model-type", "openai_model", "+placement=shared")
RUN = ("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model", "+placement=shared")
NO_SERVE = ("eval", "run", "--no-serve", "--agent", "mcqa_simple_agent", "-i", "rows.jsonl", "-o", "r.jsonl")


def shards(run: Background) -> dict[str, int]:
    """The pids of a run's shared processes by their names."""
    children = psutil.Process(run.process.pid).children(recursive=True)
    names = {Path(f"/proc/{child.pid}/comm").read_text().strip(): child.pid for child in children}
    return {name: pid for name, pid in names.items() if name.startswith("shard-")}


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace whose model doesn't answer in the time of a test."""
    with MockProvider(Reply(text="\\boxed{A}", latency=600)) as mock:
        workplace = Workplace(tmp_path)
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="k", policy_model_name="mock")
        workplace.write_rows("rows.jsonl", [question(number) for number in range(4)])
        yield workplace


def test_every_rollout_is_run_once_and_both_shards_take_part(place: Workplace, provider: MockProvider) -> None:
    place.write_rows("rows.jsonl", [question(number) for number in range(40)])
    before = len(provider.requests)
    with place.started(*START, "+placement_shards=2") as run:
        run.wait_for("All 3 / 3 servers ready!")
        assert "mcqa, mcqa_simple_agent and policy_model share 2 processes" in run.text
        pids = shards(run)
        assert sorted(pids) == ["shard-1", "shard-2"]
        used = {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in pids.items()}
        ended = place.gym(*NO_SERVE, "--num-repeats", "2")
        assert ended.code == 0, ended.err
        assert all(sum(psutil.Process(pid).cpu_times()[:2]) > used[name] for name, pid in pids.items())
        status = place.gym("env", "status")
        assert "3 servers found (3 healthy, 0 unhealthy)" in status.out
        assert run.stop(signal.SIGTERM) == 0
    keys = Counter((record["_ng_task_index"], record["_ng_rollout_index"]) for record in place.read_rows("r.jsonl"))
    assert keys == Counter({(task, repeat): 1 for task in range(40) for repeat in range(2)})
    assert all(record["reward"] == 1.0 for record in place.read_rows("r.jsonl"))
    assert len([each for each in provider.requests[before:] if each.path.endswith("/responses")]) == 80
    (metrics,) = json.loads((place.folder / "r_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == 1.0
    assert not any(is_alive(pid) for pid in pids.values())


def test_the_death_of_a_shard_ends_the_run_with_its_servers_names(stuck: Workplace) -> None:
    only_once = ("+placement_shards=2", "+server_restarts=0")
    with stuck.started(*RUN, *only_once, "-i", "rows.jsonl", "-o", "r.jsonl") as run:
        run.wait_for("All 3 / 3 servers ready!")
        run.wait_until(lambda: stuck.lines("r.jsonl.journal") > 1)
        pids = shards(run)
        os.kill(pids["shard-2"], signal.SIGKILL)
        assert run.ended() == 1
    sentence = "The process of mcqa, mcqa_simple_agent and policy_model (shard 2 of 2, pid "
    assert run.text.count(sentence) == 1 and "was killed by SIGKILL" in run.text, run.text
    assert "Traceback" not in run.text
    assert not any(is_alive(pid) for pid in pids.values())
    assert list(stuck.runs.glob("*/*")) == []
