"""`gym ps` from another terminal: why is it stuck."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.serve.control_socket import ask
from tests.e2e.harness import Workplace, question
from tests.e2e.test_supervision import PROCESS, RUN, SHARED, processes
from tests.mock_provider import MockProvider, Reply
from tests.ports import free_port

SERVER_KEYS = {
    *("name", "server_type", "implementation", "pid", "processes", "state", "restarts", "uptime_s", "cpu_s"),
    *("memory_bytes", "in_flight", "oldest_s", "served", "sessions", "answers", "url"),
}
VIEW_KEYS = {
    *("version", "as_of", "port", "pid", "command", "uptime_s", "findings", "servers", "processes", "collectors"),
    *("stages", "rollouts", "backends", "waits"),
}


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace whose model answers nobody in the time of a test."""
    with MockProvider(Reply(text="\\boxed{A}", latency=600)) as mock:
        workplace = Workplace(tmp_path)
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="k", policy_model_name="mock")
        workplace.write_rows("rows.jsonl", [question(number) for number in range(6)])
        yield workplace


def view(place: Workplace) -> dict[str, Any]:
    ended = place.gym("ps", "--json")
    assert ended.code == 0, ended.err
    told: dict[str, Any] = json.loads(ended.out)
    return told


@pytest.mark.parametrize("placement", [PROCESS, SHARED], ids=["process", "shared"])
def test_it_says_which_rollout_waits_where(stuck: Workplace, placement: tuple[str, ...]) -> None:
    """B32, Gym#2859, Gym#2831: stage, age and server of every rollout in flight, from another terminal."""
    with stuck.started(*RUN, "--concurrency", "4", *placement) as run:
        run.wait_until(lambda: any(stuck.runs.glob("*/*/run.json")) and view(stuck)["stages"].get("model") == 4)
        told = view(stuck)
        assert told.keys() == VIEW_KEYS and told["servers"][0].keys() == SERVER_KEYS
        assert told["stages"] == {"model": 4, "queued": 2}
        assert {(each["stage"], each["server"]) for each in told["rollouts"]} == {("model", "policy_model")}
        assert sorted(each["rollout"] for each in told["rollouts"]) == ["0-0", "1-0", "2-0", "3-0"]
        policy = {server["name"]: server for server in told["servers"]}["policy_model"]
        assert (policy["in_flight"], policy["state"], policy["answers"]) == (4, "running", True)
        assert policy["oldest_s"] > 0 and policy["memory_bytes"] > 1 << 20
        (collector,) = told["collectors"]
        assert (collector["pid"], collector["states"]["running"], collector["planned"]) == (run.process.pid, 4, 6)
        text = stuck.gym("ps", COLUMNS="60").out
        first = " ".join(" ".join(text.splitlines()[1:3]).split())
        assert first.startswith("Oldest: ") and "in model at policy_model" in first
        assert "In flight: 4 model, 2 queued" in text and "0 of 6 done" in text
        run.stop(signal.SIGINT)


def test_a_server_that_hangs_is_named_with_what_to_do(stuck: Workplace) -> None:
    """B32, B26: SIGSTOP of a server; its callers still tell who waits for it."""
    with stuck.started(*RUN, *PROCESS) as run:
        run.wait_until(lambda: any(stuck.runs.glob("*/*/run.json")) and view(stuck)["stages"].get("model") == 6)
        pid = processes(stuck)["policy_model"]
        os.kill(pid, signal.SIGSTOP)
        views: list[dict[str, Any]] = []  # one is enough: after half a minute the run itself starts it anew

        def is_told() -> bool:
            views.append(view(stuck))
            return f"policy_model (pid {pid}) gives no answer" in "".join(views[-1]["findings"])

        run.wait_until(is_told)
        told = views[-1]
        (finding,) = [each for each in told["findings"] if "gives no answer" in each]
        assert "it is stopped, as by SIGSTOP" in finding
        assert "`gym env restart policy_model` starts it anew" in finding
        assert {(each["stage"], each["server"]) for each in told["rollouts"]} == {("model", "policy_model")}
        assert stuck.gym("env", "restart", "policy_model").code == 0
        run.wait_until(lambda: "gives no answer" not in "".join(view(stuck)["findings"]))
        run.stop(signal.SIGINT)
    assert "Traceback" not in run.text


def test_a_run_that_waits_for_its_model_says_so(tmp_path: Path) -> None:
    """D30: an endpoint that refuses connections is what the run is about, not that nothing is in flight."""
    place = Workplace(tmp_path)
    url = f"http://127.0.0.1:{free_port()}/v1"
    place.write_env(policy_base_url=url, policy_api_key="k", policy_model_name="mock")
    with place.started("env", "start", *RUN[2:6]) as servers:
        servers.wait_until(lambda: any(place.runs.glob("*/*/run.json")) and bool(view(place)["waits"]))
        told = view(place)
        (wait,) = told["waits"]
        assert url in wait["endpoint"] and wait["why"] == "connection refused" and wait["limit"] == 600
        (finding,) = told["findings"]
        assert finding.startswith(f"The run waits for {url} (from policy_model.") and "No rollout" not in finding
        assert "of at most 10 min 0 s; +model_endpoint_readiness_timeout_seconds=N changes that" in finding
        assert servers.stop(signal.SIGTERM) == 0


def test_a_collector_against_running_servers_is_seen_too(stuck: Workplace) -> None:
    no_serve = ("eval", "run", "--no-serve", "--agent", "mcqa_simple_agent", "-i", "rows.jsonl", "-o", "r.jsonl")
    with stuck.started("env", "start", *RUN[2:6]) as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        idle = stuck.gym("ps").out
        assert "No rollout is in flight." in idle
        assert len({process["pid"] for process in view(stuck)["processes"]}) == 3, "env start shares only if asked"
        with stuck.started(*no_serve) as run:
            run.wait_until(lambda: view(stuck)["stages"].get("model") == 6)
            (collector,) = view(stuck)["collectors"]
            assert collector["pid"] == run.process.pid
            run.stop(signal.SIGINT)
        assert view(stuck)["collectors"] == []
        servers.stop(signal.SIGTERM)


def test_several_runs_have_to_be_told_apart(stuck: Workplace, tmp_path: Path) -> None:
    other = Workplace(tmp_path)  # the same folder and env.yaml, with a port of its own
    with (
        stuck.started("env", "start", *RUN[2:6]) as first,
        other.started("env", "start", *RUN[2:6], f"+head_server.port={other.head_port}") as second,
    ):
        first.wait_for("All 3 / 3 servers ready!")
        second.wait_for("All 3 / 3 servers ready!")
        ended = stuck.gym("ps")
        assert ended.code == 1 and "--port" in ended.error
        told = json.loads(stuck.gym("ps", "--json", "--port", str(other.head_port)).out)
        assert (told["port"], told["pid"]) == (other.head_port, second.process.pid)


def test_without_a_run_it_is_one_sentence(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.write_env()
    ended = place.gym("ps")
    assert (ended.code, ended.out) == (1, "")
    assert ended.error == "Error: No run is alive: start one with `gym env start`."
    assert "takes no override" in place.gym("ps", "+limit=3").error


def test_watching_ends_quietly_on_ctrl_c_and_with_the_run(stuck: Workplace) -> None:
    with stuck.started("env", "start", *RUN[2:6]) as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        with stuck.started("ps", "--watch") as watch:
            watch.wait_for("No rollout is in flight.")
            assert watch.stop(signal.SIGINT) == 0
            assert "Traceback" not in watch.text
        with stuck.started("ps", "--watch", "--json") as watch:
            watch.wait_for('"No rollout is in flight."')
            servers.stop(signal.SIGTERM)
            assert watch.ended() == 0
            assert "The run has ended." in watch.text


def test_eval_run_shares_processes_by_itself_and_says_so(stuck: Workplace) -> None:
    """B43: what is chosen is printed, and can be chosen otherwise."""
    with stuck.started(*RUN) as run:
        run.wait_for("All 3 / 3 servers ready!")
        (line,) = [
            line for line in run.text.splitlines() if line.startswith("mcqa, mcqa_simple_agent and policy_model")
        ]
        assert " process" in line and "(placement: shared, as all of them allow; +placement=process gives" in line
        assert all(process["process"].startswith("shard-") for process in view_processes(stuck))
        run.stop(signal.SIGINT)
    with stuck.started(*RUN, "--overwrite", *PROCESS) as run:
        run.wait_for("All 3 / 3 servers ready!")
        assert "placement" not in run.text
        assert [each["process"] for each in view_processes(stuck)] == ["mcqa", "mcqa_simple_agent", "policy_model"]
        run.stop(signal.SIGINT)
    workers = "++mcqa_simple_agent.responses_api_agents.simple_agent.num_workers=2"
    with stuck.started(*RUN, "--overwrite", workers) as run:
        run.wait_for("All 3 / 3 servers ready!")
        assert "Every server has a process of its own: mcqa_simple_agent asks for 2 workers." in run.text
        run.stop(signal.SIGINT)


def view_processes(place: Workplace) -> list[dict[str, Any]]:
    (folder,) = place.runs.glob("*/*")
    told: list[dict[str, Any]] = ask(folder, "control.sock", "servers")["processes"]
    return told
