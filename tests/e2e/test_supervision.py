"""Servers that die while rollouts are collected, by the real command line."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nemo_gym.serve.control_socket import ask
from tests.e2e.harness import Background, Workplace, is_alive, question
from tests.mock_provider import MockProvider, Reply, Script, ToolCall

RUN = ("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model", "-i", "rows.jsonl", "-o", "r.jsonl")
PROCESS, SHARED = ("+placement=process",), ("+placement=shared", "+placement_shards=2")
ROWS = 24


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace whose model takes a moment for every answer, so that a run is in the middle of something."""
    with MockProvider(Reply(text="\\boxed{A}", latency=0.4)) as mock:
        workplace = Workplace(tmp_path)
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="k", policy_model_name="mock")
        workplace.write_rows("rows.jsonl", [question(number) for number in range(ROWS)])
        yield workplace


def processes(place: Workplace) -> dict[str, int]:
    """The pids of a run's server processes, as its control socket tells them."""
    (folder,) = place.runs.glob("*/*")
    told = ask(folder, "control.sock", "servers")
    return {process["process"]: process["pid"] for process in told["processes"] if process["state"] == "running"}


def kill_when(run: Background, happened: Callable[[], bool], pid_of: Callable[[], int]) -> int:
    run.wait_until(happened)
    pid = pid_of()
    os.kill(pid, signal.SIGKILL)
    return pid


def assert_complete(place: Workplace, run: Background) -> None:
    assert run.ended() == 0, run.text
    keys = Counter(record["_ng_task_index"] for record in place.read_rows("r.jsonl"))
    assert keys == Counter(range(ROWS)), run.text
    assert all(record["reward"] == 1.0 for record in place.read_rows("r.jsonl"))
    (metrics,) = json.loads((place.folder / "r_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == 1.0
    assert "Traceback" not in run.text, run.text
    assert list(place.runs.glob("*/*")) == []


@pytest.mark.parametrize(
    ("placement", "name"),
    [
        (PROCESS, "mcqa"),
        (PROCESS, "mcqa_simple_agent"),
        (PROCESS, "policy_model"),
        ((*PROCESS, "++mcqa_simple_agent.responses_api_agents.simple_agent.num_workers=2"), "mcqa_simple_agent"),
        (SHARED, "shard-2"),
    ],
    ids=["resources", "agent", "model", "workers", "shard"],
)
def test_a_server_that_is_killed_is_started_again_and_the_run_completes(
    place: Workplace, placement: tuple[str, ...], name: str
) -> None:
    """B26: its death is noticed at once, told with its name, and costs nothing but time."""
    with place.started(*RUN, "--concurrency", "4", *placement) as run:
        run.wait_for("All 3 / 3 servers ready!")
        pid = kill_when(run, lambda: place.lines("r.jsonl") >= 2, lambda: processes(place)[name])
        run.wait_for(f"{name} serves again (pid ")
        assert f"pid {pid}) was killed by SIGKILL before it was asked to." in run.text
        assert "It is started again (restart 1 of at most 3 within 10 minutes)." in run.text
        assert_complete(place, run)
    assert not is_alive(pid)


def test_one_that_dies_again_and_again_ends_the_run_with_its_last_lines(place: Workplace) -> None:
    """B26: never restarted for ever; what is saved stays, and how to go on is told."""
    with place.started(*RUN, "--concurrency", "1", *PROCESS, "+server_restarts=1") as run:
        run.wait_for("All 3 / 3 servers ready!")
        kill_when(run, lambda: place.lines("r.jsonl") >= 1, lambda: processes(place)["policy_model"])
        run.wait_for("policy_model serves again (pid ")
        pid = kill_when(run, lambda: "policy_model" in processes(place), lambda: processes(place)["policy_model"])
        assert run.ended() == 1
    assert f"Error: Server policy_model (pid {pid}) was killed by SIGKILL before it was asked to." in run.text
    assert "It is not started again: 1 within 10 minutes is the limit (+server_restarts=)." in run.text
    assert f"of {ROWS} rollouts are saved in r.jsonl" in run.text and "--resume" in run.text
    assert "Traceback" not in run.text and list(place.runs.glob("*/*")) == []


def test_a_session_that_went_with_its_server_is_run_again(tmp_path: Path) -> None:
    """B26: no wrong result, no lost rollout; the failure says what it was."""
    call = ToolCall("example_mcp_weather_get_weather", {"city": "Paris"})
    turns = (Reply(text=None, tool_calls=(call,), latency=1.0), Reply(text="sunny", latency=1.0))
    with MockProvider(Script.of(*turns)) as mock:
        place = Workplace(tmp_path)
        place.write_env(policy_base_url=mock.base_url, policy_api_key="k", policy_model_name="mock")
        selected = ("--resources-server", "example_mcp_weather", "--model-type", "openai_model")
        with place.started("eval", "run", *selected, "-o", "r.jsonl", *PROCESS) as run:
            run.wait_until(lambda: any(request.path.endswith("/responses") for request in mock.requests))
            pid = processes(place)["example_mcp_weather"]
            os.kill(pid, signal.SIGKILL)
            assert run.ended() == 0, run.text
        assert "(session_lost: " in run.text, run.text
        assert not any(name.lower() == "x-nemo-gym-rollout" for each in mock.requests for name in each.headers)
        records = place.read_rows("r.jsonl")
        assert len(records) == 5 and not place.read_rows("r_failures.jsonl")


def test_kill_9_of_the_launcher_takes_restarted_servers_along(place: Workplace) -> None:
    """B22: what was started later ends as surely as what was started first."""
    with place.started("env", "start", *RUN[2:6], *PROCESS) as run:
        run.wait_for("All 3 / 3 servers ready!")
        before = processes(place)
        os.kill(before["mcqa"], signal.SIGKILL)
        run.wait_for("mcqa serves again (pid ")
        after = processes(place)
        assert after["mcqa"] != before["mcqa"]
        run.stop(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while any(map(is_alive, after.values())) or list(place.runs.glob("*/*")):
            assert time.monotonic() < deadline, "something outlived the launcher"
            time.sleep(0.02)


def test_env_start_goes_on_without_a_word_from_its_user(place: Workplace) -> None:
    """Gym#144: servers for outside clients come back on their ports, and can be restarted by name."""
    with place.started("env", "start", *RUN[2:6]) as run:
        run.wait_for("All 3 / 3 servers ready!")
        before = processes(place)
        ended = place.gym("env", "restart", "policy_model")
        assert ended.code == 0, ended.err
        after = processes(place)
        assert ended.out == f"Restarted policy_model: pid {before['policy_model']} is now {after['policy_model']}.\n"
        assert before["mcqa"] == after["mcqa"]
        missing = place.gym("env", "restart", "policy_modl")
        assert missing.code == 1 and "Did you mean `policy_model`?" in missing.error
        assert place.gym("env", "restart").code == 2
        status = json.loads(place.gym("env", "status", "--json").out)
        assert {row["process_name"]: row["pid"] for row in status} == after
        assert run.stop(signal.SIGTERM) == 0
