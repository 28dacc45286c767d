"""Servers as actors over the nodes of a cluster, by the real command line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from nemo_gym.serve.control_socket import ask
from tests.e2e.harness import Background, Workplace, is_alive
from tests.ray.cluster import LocalCluster
from tests.ray.runs import AGENT, MODEL, RESOURCES, SERVERS, assert_complete, on, write_rows

START = ("env", "start", *SERVERS)
NO_SERVE = ("eval", "run", "--no-serve", "--agent", AGENT, "-i", "rows.jsonl", "-o", "r.jsonl")


def records(place: Workplace) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{place.head_port}/server_instances", timeout=20) as answer:
        return {record["process_name"]: record for record in json.loads(answer.read())}


def actors_below(cluster: LocalCluster) -> list[psutil.Process]:
    found = [process for address in cluster.addresses for process in cluster.processes_of(address)]
    return [process for process in found if "Seat" in " ".join(_command(process))]


def _command(process: psutil.Process) -> list[str]:
    """Empty for one that has just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def folders(cluster: LocalCluster) -> list[str]:
    return [path.name for path in (cluster.folder / "run").glob("*/ray-*")]


def wait_until_empty(what: Callable[[], list[Any]]) -> None:
    """For what has no event to wait on."""
    deadline = time.monotonic() + 30
    while found := what():
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def wait_until_gone(pids: list[int]) -> None:
    wait_until_empty(lambda: [pid for pid in pids if is_alive(pid)])


def started(place: Workplace, run: Background) -> dict[str, Any]:
    run.wait_for("All 3 / 3 servers ready!")
    found = records(place)
    assert all(record["pid"] > 0 for record in found.values())
    return found


def test_servers_are_spread_and_each_session_stays_with_its_server(cluster: LocalCluster, place: Workplace) -> None:
    write_rows(place)
    with place.started(*START, *on(cluster), "+uvicorn_logging_show_200_ok=true") as run:
        found = started(place, run)
        hosts = {name: record["host"] for name, record in found.items()}
        assert hosts == {RESOURCES: "127.0.0.2", AGENT: "127.0.0.3", MODEL: "127.0.0.2"}
        assert len(folders(cluster)) == 3
        ended = place.gym(*NO_SERVE)
        assert ended.code == 0, ended.err
        (folder,) = place.runs.glob("*/*")
        told = ask(folder, "control.sock", "servers")["processes"]
        assert [process["pid"] for process in told] == [None] * 3, "here a pid of theirs means nothing"
        shown = place.gym("ps")
        assert shown.code == 0 and "died" not in shown.out, shown.out
        assert run.stop(signal.SIGTERM) == 0, run.text
    assert_complete(place, ended.out + ended.err)
    assert f"({AGENT}) " in run.text, "what a server writes on its node is shown here"
    assert not any(is_alive(record["pid"]) for record in found.values())
    assert (actors_below(cluster), folders(cluster)) == ([], [])


def test_a_server_that_ends_is_started_again_where_it_was(cluster: LocalCluster, place: Workplace) -> None:
    with place.started(*START, *on(cluster), "+uvicorn_logging_show_200_ok=true") as run:
        before = started(place, run)[AGENT]
        urllib.request.urlopen(before["url"], timeout=20).close()
        os.kill(before["pid"], signal.SIGKILL)
        run.wait_for(f"{AGENT} serves again")
        after = records(place)[AGENT]
        assert after["url"] == before["url"] and after["pid"] != before["pid"]
        assert f"{AGENT} (pid {before['pid']}) was killed by SIGKILL before it was asked to." in run.text
        run.text = ""
        assert place.gym("env", "restart", AGENT).code == 0
        run.wait_for(f"{AGENT} serves again")
        assert records(place)[AGENT]["pid"] not in (before["pid"], after["pid"])
        logs = place.gym("env", "logs", AGENT)
        assert (logs.code, logs.out != "") == (0, True), logs.err
        assert place.gym("env", "stop").code == 0
        assert run.ended() == 0, run.text


def test_an_actor_that_is_killed_takes_its_server_with_it_and_is_replaced(
    cluster: LocalCluster, place: Workplace
) -> None:
    write_rows(place)
    with place.started(*START, *on(cluster)) as run:
        before = started(place, run)[AGENT]
        launcher = psutil.Process(before["pid"]).parent()  # the process that starts servers
        assert launcher is not None
        actor = launcher.parent()
        assert actor is not None
        actor.kill()
        run.wait_for(f"{AGENT} serves again")
        assert f"was lost with its actor on node {before['host']}" in run.text
        wait_until_gone([before["pid"]])
        ended = place.gym(*NO_SERVE)
        assert ended.code == 0, ended.err
        assert run.stop(signal.SIGTERM) == 0
    assert_complete(place, ended.out + ended.err)


def test_nothing_outlives_a_launcher_that_is_killed(cluster: LocalCluster, place: Workplace) -> None:
    with place.started(*START, *on(cluster)) as run:
        pids = [record["pid"] for record in started(place, run).values()]
        pids += [process.pid for process in actors_below(cluster)]
        assert len(pids) == 6
        os.kill(run.process.pid, signal.SIGKILL)
        wait_until_gone(pids)
        wait_until_empty(lambda: folders(cluster))


def test_a_run_that_names_no_cluster_has_one_of_its_own(place: Workplace, tmp_path: Path) -> None:
    """Without a dashboard, on this machine's loopback address, and gone with the run, however that ends."""
    folder = tempfile.mkdtemp(prefix="gr-")  # a short path: Ray has sockets in it
    with place.started(*START, "+placement=ray", RAY_TMPDIR=folder, XDG_RUNTIME_DIR=str(tmp_path / "runs")) as run:
        try:
            found = started(place, run)
            assert {record["host"] for record in found.values()} == {"127.0.0.1"}
            below = psutil.Process(run.process.pid).children(recursive=True)
            names = [Path(command[0]).name for process in below if (command := process.cmdline())]
            assert "raylet" in names and not any(name.startswith("ray-dashboard") for name in names), names
            run.process.kill()
            wait_until_gone([process.pid for process in below] + [record["pid"] for record in found.values()])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
