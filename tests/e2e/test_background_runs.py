"""Runs in the background: started, listed, read and stopped from outside."""

import json
import signal
import urllib.request

from tests.e2e.harness import Workplace, is_alive

START = ("env", "start", "--resources-server", "mcqa", "--model-type", "openai_model")


def pids(place: Workplace, *argv: str) -> list[int]:
    return [row["pid"] for row in json.loads(place.gym("env", "status", "--json", *argv).out)]


def test_a_detached_start_returns_when_ready_and_is_stopped_by_name_of_its_port(place: Workplace) -> None:
    started = place.gym(*START, "--detach")
    assert started.code == 0, started.err
    assert "All 3 / 3 servers ready!" in started.out
    servers = pids(place)
    assert len(servers) == 3 and all(map(is_alive, servers))
    stopped = place.gym("env", "stop", "--port", str(place.head_port))
    assert stopped.code == 0, stopped.err
    assert not any(map(is_alive, servers))
    assert list(place.runs.glob("*/*")) == []
    assert place.gym("env", "stop").code == 1


def test_a_detached_start_that_fails_says_why_and_fails(place: Workplace) -> None:
    ended = place.gym(*START, "--detach", "++policy_base_url=http://127.0.0.1:9/v1", "+x=1", "+x=2")
    assert ended.code == 1
    assert "`+x=2`" in ended.out + ended.err


def test_several_runs_have_to_be_told_apart(place: Workplace) -> None:
    other = Workplace(place.folder)
    assert place.gym(*START, "--detach").code == 0
    assert place.gym(*START, "--detach", f"+head_server.port={other.head_port}").code == 0
    try:
        ports = sorted([place.head_port, other.head_port])
        unclear = place.gym("env", "stop")
        assert unclear.code == 1 and "--port" in unclear.error
        assert all(str(port) in unclear.error for port in ports)
        told = json.loads(place.gym("ps", "--json", "--port", str(other.head_port)).out)
        assert told["command"].startswith("gym ") and "-c" not in told["command"].split()
        assert place.gym("env", "logs", "mcqa").code == 1
        assert place.gym("env", "logs", "mcqa", "--port", str(other.head_port)).code == 0
        assert len(pids(place, f"+head_server.port={other.head_port}")) == 3
    finally:
        everything = place.gym("env", "stop", "--all")
    assert everything.code == 0, everything.err
    assert list(place.runs.glob("*/*")) == []


def test_a_key_on_the_line_is_shown_nowhere(place: Workplace) -> None:
    key = "key-typed-on-the-line"
    with place.started(*START, "--model-api-key", key) as servers:
        text = servers.wait_for("All 3 / 3 servers ready!")
        files = [path for path in place.runs.rglob("*") if path.is_file() and path.name != "config.json"]
        text += "".join(path.read_text(errors="replace") for path in files)
        with urllib.request.urlopen(f"http://127.0.0.1:{place.head_port}/global_config_dict_yaml") as reply:
            text += reply.read().decode()
        assert "run.json" in {path.name for path in files}
        text += place.gym("env", "start", "--config", "nope.yaml", "--model-api-key", key).err
    assert key not in text and "policy_api_key" in text


def test_status_points_at_a_run_with_another_port(place: Workplace) -> None:
    other = Workplace(place.folder)
    assert place.gym(*START, "--detach", f"+head_server.port={other.head_port}").code == 0
    try:
        assert f"+head_server.port={other.head_port}" in place.gym("env", "status").err
    finally:
        place.gym("env", "stop", "--all")


TALKING = (*START, "+uvicorn_logging_show_200_ok=true")
"""Servers that log every request; `gym env status` makes one to each."""


def test_a_log_is_followed_until_the_run_ends(place: Workplace) -> None:
    with place.started(*TALKING) as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        with place.started("env", "logs", "mcqa", "-f") as follower:
            assert len(pids(place)) == 3
            follower.wait_for("GET / ")
            printed = place.gym("env", "logs", "mcqa")
            assert "GET / " in printed.out and "Traceback" not in printed.err
            assert servers.stop(signal.SIGTERM) == 0
            assert follower.ended() == 0


def test_following_ends_quietly_on_ctrl_c(place: Workplace) -> None:
    with place.started(*TALKING) as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        assert len(pids(place)) == 3
        with place.started("env", "logs", "mcqa", "-f") as follower:
            follower.wait_for("GET / ")
            assert follower.stop(signal.SIGINT) == 0
        assert "Traceback" not in follower.text
