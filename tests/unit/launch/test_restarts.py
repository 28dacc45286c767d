"""Servers that end by themselves are started again: how often, how fast, and what is said about it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from omegaconf import DictConfig

from nemo_gym.config.errors import ConfigError
from nemo_gym.launch.errors import LaunchError, ServerFailedError
from nemo_gym.launch.launch import Launch
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.restarts import RestartBook, Restarted, Reviver
from nemo_gym.launch.run_directory import running
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.launch.supervisor import Supervisor
from nemo_gym.serve.control_socket import RefusedError, ask
from tests.unit.launch import toys
from tests.unit.launch.test_launch import ask as ask_server
from tests.unit.launch.test_launch import started
from tests.unit.launch.test_shared_runs import TOY

Until = Callable[[Callable[[], bool]], None]


def test_the_book_allows_so_many_restarts_in_a_while() -> None:
    now = [0.0]
    book = RestartBook(2, window=600, clock=lambda: now[0])
    assert [book.take("a"), book.take("b"), book.take("a"), book.take("a")] == [1, 1, 2, None]
    now[0] = 599.0
    assert book.take("a") is None
    now[0] = 601.0
    assert book.take("a") == 1


@pytest.mark.parametrize("value", [-1, True, "3", 1.5])
def test_a_wrong_number_of_restarts_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="server_restarts is"):
        LaunchSettings.from_config({"server_restarts": value})


def test_the_config_wins_over_what_a_command_is_used_to() -> None:
    assert LaunchSettings.from_config({}, restarts=3).restarts == 3
    assert LaunchSettings.from_config({"server_restarts": 0}, restarts=3).restarts == 0
    assert LaunchSettings.from_config({"server_restarts": 5}).restarts == 5
    assert LaunchSettings.from_config({}).restarts == 0


class Toy:
    """A server that is started again by a list of what becomes of it: True serves, False ends at once."""

    def __init__(self, *fates: bool) -> None:
        self.fates = list(fates)
        self.supervisor = Supervisor({})
        self.lines: list[str] = []
        self.back: list[str] = []
        self.given_up = threading.Event()
        self.problem: Exception | None = None
        self.reviver = Reviver(RestartBook(3), self, self.lines.append, seconds_to_start=20, delays=(0.0, 0.0, 0.0))
        self.supervisor.hand_over(self.reviver.take)

    def die(self, code: int = -9) -> ServerProcess:
        process = ServerProcess("toy", [], 1)
        process.end_with(code)
        self.supervisor.note_death(process)
        return process

    def start_again(self, name: str, generation: int) -> Restarted:
        if self.problem is not None:
            raise self.problem
        ready, far_end = os.pipe()
        process = ServerProcess(name, [], 100 + generation)
        if self.fates.pop(0):
            os.write(far_end, b"1")
        else:
            process.end_with(3)
            self.supervisor.note_death(process)
        os.close(far_end)
        return Restarted(process, ready)

    def answers(self, name: str) -> bool:
        return False

    def is_back(self, name: str) -> None:
        self.back.append(name)

    def describe(self, process: ServerProcess) -> str:
        return self.supervisor.describe(process)

    def give_up(self, process: ServerProcess, why: str) -> None:
        self.supervisor.give_up(process, why)
        self.given_up.set()


@pytest.fixture
def toy() -> Iterator[Callable[..., Toy]]:
    made: list[Toy] = []

    def make(*fates: bool) -> Toy:
        made.append(Toy(*fates))
        return made[-1]

    yield make
    for each in made:
        each.reviver.stop()
        each.supervisor.close()


def test_a_crash_loop_ends_with_the_reason(toy: Callable[..., Toy]) -> None:
    """B26: what dies again and again isn't started for ever."""
    server = toy(False, False, False)
    server.die()
    assert server.given_up.wait(20)
    with pytest.raises(ServerFailedError) as raised:
        server.supervisor.check()
    assert str(raised.value).startswith("Server toy (pid 103) exited with code 3 before it was asked to.")
    assert "It is not started again: 3 within 10 minutes is the limit (+server_restarts=)." in str(raised.value)
    assert server.reviver.states["toy"] == "ended" and server.back == []


def test_one_that_comes_back_is_told_and_nothing_ends(toy: Callable[..., Toy], until: Until) -> None:
    server = toy(False, True)
    server.die()
    until(lambda: server.back == ["toy"])
    server.supervisor.check()
    until(lambda: len(server.lines) == 3)
    assert server.lines[0].startswith("Server toy (pid 1) was killed by SIGKILL before it was asked to.")
    assert server.lines[0].endswith("It is started again (restart 1 of at most 3 within 10 minutes).")
    assert server.lines[1].endswith("(restart 2 of at most 3 within 10 minutes).")
    assert server.lines[2].startswith("toy serves again (pid 102), ")
    assert server.reviver.generations["toy"] == 2


def test_what_no_node_took_is_not_said_to_have_had_a_pid(toy: Callable[..., Toy]) -> None:
    process = ServerProcess("toy", [], 0)
    process.end_with(1, "couldn't be started (no node takes toy)")
    assert toy().describe(process) == "Server toy couldn't be started (no node takes toy)."


def test_what_cannot_be_started_ends_the_run(toy: Callable[..., Toy]) -> None:
    server = toy()
    server.problem = LaunchError("no room.")
    server.die()
    assert server.given_up.wait(20)
    with pytest.raises(ServerFailedError, match=r"It could not be started again: no room\."):
        server.supervisor.check()


def test_a_death_with_the_fork_server_is_final(toy: Callable[..., Toy]) -> None:
    server = toy(True)
    process = ServerProcess("toy", [], 1)
    process.end_with(-9, "went down with the process that starts servers")
    server.supervisor.note_death(process)
    with pytest.raises(ServerFailedError, match="went down"):
        server.supervisor.check()


def test_one_that_hangs_is_ended_and_started_again(toy: Callable[..., Toy], until: Until) -> None:
    """B32: it counts as a death, and what is said is why, not how it was ended."""
    server = toy(True)
    process = ServerProcess("toy", [], 2**22 + 1)

    def end(number: int) -> None:
        if process.returncode is None:
            process.end_with(-number)
            server.supervisor.note_death(process)

    process.send_signal = end  # type: ignore[method-assign]
    server.reviver.restart_hung(process, "was stopped, as by SIGSTOP, for 30 s")
    until(lambda: server.back == ["toy"])
    assert server.lines[0].startswith(f"toy (pid {process.pid}) was stopped, as by SIGSTOP, for 30 s and was ended.")
    assert "(restart 1 of at most 3 within 10 minutes)" in server.lines[0]
    assert server.reviver.last_ends == {"toy": "was stopped, as by SIGSTOP, for 30 s"}


@pytest.mark.parametrize(("is_charged", "most"), [(True, 15), (False, 3)])
def test_one_that_is_held_is_killed_at_once_and_counted_by_who_pays(
    is_charged: bool, most: int, toy: Callable[..., Toy], until: Until
) -> None:
    """A4: it hears no other signal; where a rollout fails for it, the run goes on for longer."""
    server = toy(*[True] * most)
    signals: list[int] = []
    for number in range(1, most + 2):
        process = ServerProcess("toy", [], 2**22 + number)

        def end(number: int, process: ServerProcess = process) -> None:
            signals.append(number)
            process.end_with(-number)
            server.supervisor.note_death(process)

        process.send_signal = end  # type: ignore[method-assign]
        server.reviver.restart_held(process, "had its event loop held", "Use a def.", is_charged=is_charged)
        if number <= most:
            until(lambda number=number: len(server.back) == number)  # type: ignore[misc]
    assert server.given_up.wait(20) and set(signals) == {signal.SIGKILL}
    assert server.lines[0].startswith(f"toy (pid {2**22 + 1}) had its event loop held and was ended. Use a def.\n")
    assert f"(restart 1 of at most {most} within 10 minutes)" in server.lines[0]
    with pytest.raises(ServerFailedError) as raised:
        server.supervisor.check()
    told = f"It had its event loop held. Use a def.\nIt is not started again: {most} within 10 minutes is the limit"
    assert told in str(raised.value)


def test_nothing_is_started_while_a_run_stops(toy: Callable[..., Toy]) -> None:
    server = toy(True)
    server.reviver.stop()
    server.supervisor.expect_deaths()
    server.die()
    server.supervisor.check()
    assert server.fates == [True] and server.lines == []


# --- whole runs ---


@pytest.fixture
def config(root: Path) -> DictConfig:
    toys.add_component(root, "alpha", toys.HAS_GRANDCHILD)
    toys.add_component(root, "beta")
    return toys.config_for(root, "alpha", "beta", server_restarts=3)


def url(config: DictConfig, name: str = "alpha") -> str:
    return f"http://127.0.0.1:{config[name].resources_servers[name].port}"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def processes_of() -> set[int]:
    found = psutil.Process(os.getpid()).children(recursive=True)
    return {child.pid for child in found if child.status() != psutil.STATUS_ZOMBIE}


def test_requests_wait_for_the_server_to_come_back(
    config: DictConfig, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B26: the socket is the launcher's, so nobody is refused in between, and nothing is left over afterwards."""
    monkeypatch.setattr("nemo_gym.launch.restarts.DELAYS", (0.0,))
    others = processes_of()
    with started(config) as (launch, _):
        before = launch.processes["alpha"]
        until(lambda: len(processes_of() - others) == 5)  # the fork server, its guardian, two servers, a grandchild
        open_before, threads_before = descriptors(), threading.active_count()
        for _ in range(3):
            pid = launch.processes["alpha"].pid
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
            facts = ask_server(url(config))
            assert facts["pid"] != pid and facts["environment"]["NEMO_GYM_GENERATION"]
            until(lambda pid=facts["pid"]: launch.records[0]["pid"] == pid)  # type: ignore[misc]
            launch.poll()
        until(lambda: threading.active_count() <= threads_before)
        until(lambda: descriptors() <= open_before)
        until(lambda: len(processes_of() - others) == 5)
        assert before.returncode == -signal.SIGKILL
        assert launch.records[1]["start_time"] < launch.records[0]["start_time"]
        head = ask_server(f"http://127.0.0.1:{config.head_server.port}/server_instances")
        assert head == launch.records == running()[0].servers
        os.kill(launch.processes["alpha"].pid, signal.SIGKILL)
        assert isinstance(toys.raised_soon(launch.run_forever), ServerFailedError)


def test_after_the_last_restart_the_port_refuses(root: Path, until: Until) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha", server_restarts=1)
    with started(config) as (launch, _):
        first = launch.processes["alpha"].pid
        os.kill(first, signal.SIGKILL)
        until(lambda: launch.records[0]["pid"] != first)
        os.kill(launch.records[0]["pid"], signal.SIGKILL)
        until(lambda: raises(launch.poll))
        with closing(socket.socket()) as client:
            assert client.connect_ex(("127.0.0.1", config.alpha.resources_servers.alpha.port)) != 0


def raises(action: Callable[[], None]) -> bool:
    try:
        action()
    except ServerFailedError:
        return True
    return False


def test_a_library_run_ends_with_its_server_unless_told_otherwise(root: Path, until: Until) -> None:
    toys.add_component(root, "alpha")
    with started(toys.config_for(root, "alpha")) as (launch, _):
        launch.processes["alpha"].kill()
        until(lambda: raises(launch.poll))


def test_a_server_that_dies_while_servers_start_is_one_clear_error(root: Path) -> None:
    """B24: restarting is for servers that once served."""
    toys.add_component(root, "broken", toys.CRASHES)
    with pytest.raises(ServerFailedError, match=r"\(broken\) the toy is broken$"):
        Launch(toys.config_for(root, "broken", server_restarts=3), output=lambda _: None).start()


def test_a_server_is_restarted_when_asked(config: DictConfig, until: Until) -> None:
    """Gym#144: by name, from another process."""
    with started(config) as (launch, _):
        folder = running()[0].directory
        before = {name: process.pid for name, process in launch.processes.items()}
        assert ask(folder, "control.sock", "restart", server="beta") == {"processes": {"beta": before["beta"]}}
        until(lambda: launch.records[1]["pid"] != before["beta"])
        assert launch.processes["alpha"].pid == before["alpha"]
        assert ask_server(url(config, "beta"))["pid"] == launch.processes["beta"].pid
        with pytest.raises(RefusedError, match=r"no server `bet`\. Did you mean `beta`\?"):
            ask(folder, "control.sock", "restart", server="bet")
        with pytest.raises(RefusedError) as refused:
            ask(folder, "control.sock", "pause")
        assert refused.value.code == "not_available"
        launch.poll()


def test_restarts_that_were_asked_for_are_not_counted(root: Path, until: Until) -> None:
    toys.add_component(root, "alpha")
    with started(toys.config_for(root, "alpha", server_restarts=1)) as (launch, _):
        folder = running()[0].directory
        for _ in range(3):
            pid = launch.processes["alpha"].pid
            ask(folder, "control.sock", "restart", server="alpha")
            until(lambda pid=pid: launch.records[0]["pid"] != pid)  # type: ignore[misc]
            launch.poll()
        [told] = ask(folder, "control.sock", "servers")["processes"]
        assert (told["restarts"], told["last_end"]) == (3, None), "nothing died"


def test_a_stopped_server_is_started_again(root: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """B32: a SIGSTOP, which nothing else notices, costs half a minute and not the run."""
    monkeypatch.setattr("nemo_gym.launch.silence.ASK_EVERY_SECONDS", 0.01)
    monkeypatch.setattr("nemo_gym.launch.silence.STOPPED_SECONDS", 0.05)
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha", server_restarts=1)
    with started(config) as (launch, _):
        first = launch.processes["alpha"].pid
        os.kill(first, signal.SIGSTOP)
        until(lambda: launch.records[0]["pid"] != first)
        assert ask_server(url(config))["pid"] == launch.records[0]["pid"]


def test_the_control_socket_tells_of_processes(config: DictConfig, until: Until) -> None:
    with started(config) as (launch, _):
        folder = running()[0].directory
        pid = launch.processes["alpha"].pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: launch.records[0]["pid"] != pid)
        told = ask(folder, "control.sock", "servers")["processes"]
        assert [(each["process"], each["servers"], each["restarts"]) for each in told] == [
            ("alpha", ["alpha"], 1),
            ("beta", ["beta"], 0),
        ]
        assert told[0]["pid"] == launch.processes["alpha"].pid
        assert told[0]["last_end"] == "was killed by SIGKILL" and told[1]["last_end"] is None
        assert "in_flight" in ask(folder, "control.sock", "about")["operations"]
        assert ask(folder, "control.sock", "in_flight", limit=5)["servers"] == {}
    assert not folder.exists()


def test_a_run_without_restarts_refuses_one(root: Path) -> None:
    toys.add_component(root, "alpha")
    with started(toys.config_for(root, "alpha")), pytest.raises(RefusedError, match=r"\+server_restarts=0"):
        ask(running()[0].directory, "control.sock", "restart", server="alpha")


def test_a_shard_comes_back_with_all_its_servers(root: Path, until: Until) -> None:
    toys.add_component(root, "agent", TOY, kind="responses_api_agents")
    toys.add_component(root, "near", TOY)
    config = toys.config_for(root, "near", placement="shared", placement_shards=2, server_restarts=3)
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": toys.free_port(), "other": "near"}
    config["agent"] = {"responses_api_agents": {"agent": block}}
    with started(config) as (launch, _):
        folder = running()[0].directory
        pid = launch.processes["near"].pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: launch.records[0]["pid"] != pid)
        facts = ask_server(f"http://127.0.0.1:{block['port']}/neighbour")
        assert facts["mine"] == facts["pid"] == launch.processes["agent"].pid and facts["local"]
        told = {each["process"]: each for each in ask(folder, "control.sock", "servers")["processes"]}
        assert told["shard-1"]["servers"] == ["near", "agent"]
        assert (told["shard-1"]["restarts"], told["shard-2"]["restarts"]) == (1, 0)
        answer = ask(folder, "control.sock", "restart", server="near")["processes"]
        assert list(answer) == ["shard-1", "shard-2"]


def test_its_own_table_is_where_the_run_says(root: Path, until: Until) -> None:
    toys.add_component(root, "agent", TOY, kind="responses_api_agents")
    config = toys.config_for(root)
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": toys.free_port()}
    config["agent"] = {"responses_api_agents": {"agent": block}}
    with started(config) as (launch, _):
        folder = running()[0].directory
        (path,) = (folder / "tables").glob("*.sock")
        assert path.name == f"{launch.processes['agent'].pid}.sock"
        urllib.request.urlopen(f"http://127.0.0.1:{block['port']}/facts", timeout=20).close()
        told = ask(folder, "control.sock", "in_flight", limit=5)["servers"]
        assert told[str(launch.processes["agent"].pid)]["servers"]["agent"]["served"] >= 1, "and maybe a probe"


# --- while servers start ---


WAITS_TO_BE_KILLED = toys.SERVER.replace(
    "def main():",
    """def main():
    from pathlib import Path
    tries = Path(os.environ["TRIES"])
    with tries.open("a") as file:
        file.write("x")
    if len(tries.read_text()) <= int(os.environ["KILLED"]):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        signal.pause()""",
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_killed_while_servers_start_is_started_once_more(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    monkeypatch.setenv("TRIES", str(tmp_path / "tries"))
    monkeypatch.setenv("SIGNAL", str(int(number)))
    monkeypatch.setenv("KILLED", "1")
    toys.add_component(root, "alpha", WAITS_TO_BE_KILLED)
    toys.add_component(root, "beta")
    with started(toys.config_for(root, "alpha", "beta", server_restarts=3)) as (launch, lines):
        assert ask_server(launch.records[0]["url"])["pid"] == launch.processes["alpha"].pid
        assert "All 2 / 2 servers ready! Polling every 60s" in lines
        assert "It is started once more." in capsys.readouterr().err
        launch.poll()
    assert (tmp_path / "tries").read_text() == "xx"


@pytest.mark.parametrize(("restarts", "tries"), [(3, "xx"), (0, "x")])
def test_a_second_kill_while_servers_start_ends_the_start(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int, tries: str
) -> None:
    monkeypatch.setenv("TRIES", str(tmp_path / "tries"))
    monkeypatch.setenv("SIGNAL", str(int(signal.SIGKILL)))
    monkeypatch.setenv("KILLED", "9")
    toys.add_component(root, "alpha", WAITS_TO_BE_KILLED)
    with pytest.raises(ServerFailedError, match=r"Server alpha .* was killed by SIGKILL before it was asked to"):
        Launch(toys.config_for(root, "alpha", server_restarts=restarts), output=lambda _: None).start()
    assert (tmp_path / "tries").read_text() == tries


def test_one_that_ends_by_itself_while_servers_start_would_do_it_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B24: a fault of its own is told at once, not twice."""
    monkeypatch.setenv("TRIES", str(tmp_path / "tries"))
    toys.add_component(root, "alpha", "import os\nopen(os.environ['TRIES'], 'a').write('x')\nraise SystemExit(3)\n")
    with pytest.raises(ServerFailedError, match=r"Server alpha .* exited with code 3 before it was asked to"):
        Launch(toys.config_for(root, "alpha", server_restarts=3), output=lambda _: None).start()
    assert (tmp_path / "tries").read_text() == "x"


def test_a_death_between_ready_and_watched_is_not_forgotten(
    root: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.add_component(root, "alpha")
    killed: list[int] = []

    def show(launch: Launch) -> None:
        """Runs after the wait for servers, and before anybody else cares for deaths."""
        process = launch.processes["alpha"]
        process.kill()
        process.wait(20)
        until(lambda: bool(launch._second_start and launch._second_start._killed))
        killed.append(process.pid)

    monkeypatch.setattr(Launch, "show_instances", show)
    with started(toys.config_for(root, "alpha", server_restarts=1)) as (launch, _):
        until(lambda: launch.records[0]["pid"] != killed[0])
        assert ask_server(launch.records[0]["url"])["pid"] == launch.processes["alpha"].pid
