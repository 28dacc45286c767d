"""Processes made by the fork server: what they find, how they end, and that nothing outlives whom it should not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.fork_server import ForkServer
from nemo_gym.launch.linux import process_start
from nemo_gym.launch.marker import marked_processes, sweep
from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.launch.process import ServerProcess
from tests.unit.launch.programs import AT_EXIT, DAEMON, PROBE, WAITS, WITH_GRANDCHILD, Programs


@pytest.fixture
def programs(server: ForkServer, tmp_path: Path) -> Programs:
    return Programs(server, tmp_path)


@pytest.mark.parametrize("mode", ["fork", "exec"])
def test_a_server_is_a_process_of_its_own(programs: Programs, tmp_path: Path, mode: str) -> None:
    process = programs.start(PROBE, mode=mode)
    assert process.wait(20) == 0

    facts = json.loads(programs.log().read_text())
    assert facts["pid"] == facts["group"] == process.pid
    assert facts["parent"] == facts["session"] == programs.server.pid
    assert facts["cwd"] == str(tmp_path)
    assert facts["path"][0] == str(tmp_path)
    assert facts["argv"] == [facts["file"]] == [str(tmp_path / "toy.py")]
    assert facts["executable"] == sys.executable
    assert (facts["module"], facts["pickled"], facts["collecting"]) == ("__main__", True, True)
    assert facts["greeting"] == [sys.executable, process.pid], "multiprocessing works from it"
    assert facts["stdin"] == ""
    assert (facts["term"], facts["int"], facts["mask"]) == (True, True, [])
    assert facts["environment"] == {"A": "b", "GONE": None, "PYTHONPATH": str(tmp_path)}


def test_a_fork_holds_only_its_own_descriptors(programs: Programs) -> None:
    programs.start(PROBE).wait(20)
    forked = json.loads(programs.log().read_text())["descriptors"]
    programs.start(PROBE, mode="exec", name="other").wait(20)
    executed = json.loads(programs.log("other").read_text())["descriptors"]
    assert len(forked) == len(executed)


def test_a_fork_finds_what_was_preloaded(programs: Programs) -> None:
    facts = programs.server.facts()
    programs.start(PROBE).wait(20)
    loaded = set(json.loads(programs.log().read_text())["loaded"])
    assert facts.problem is None
    assert "nemo_gym" in facts.loaded <= loaded


def test_forks_draw_different_random_numbers(programs: Programs) -> None:
    programs.start(PROBE, name="one").wait(20)
    programs.start(PROBE, name="two").wait(20)
    drawn = {json.loads(programs.log(name).read_text())["random"] for name in ("one", "two")}
    assert len(drawn) == 2


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("import sys; sys.exit('message')", 1),
        ("1 / 0", 1),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_the_exit_code_reaches_the_launcher(programs: Programs, source: str, code: int) -> None:
    assert programs.start(source).wait(20) == code


def test_a_traceback_is_in_the_log(programs: Programs) -> None:
    programs.start("def broken():\n    raise ValueError('oh no')\nbroken()").wait(20)
    text = programs.log().read_text()
    assert "ValueError: oh no" in text
    assert 'toy.py", line 2, in broken' in text


def test_an_interpreter_that_is_gone_says_so(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text("")
    request = SpawnRequest("toy", "exec", "/nowhere/python", "/", "/", str(tmp_path / "toy.py"), "/", {}, [], ["log"])
    with programs.log().open("ab") as log:
        process = programs.server.spawn(request, [log.fileno()])
    assert process.wait(20) == 127
    assert "/nowhere/python can't be run: No such file or directory." in programs.log().read_text()


def test_a_log_without_room_costs_its_lines_only(programs: Programs) -> None:
    programs.log().symlink_to("/dev/full")
    source = "import sys\nprint('x' * 10_000, flush=True)\nsys.stderr.write('y')\nraise SystemExit(5)"
    assert programs.start(source).wait(20) == 5


def test_term_ends_a_fork_in_order(programs: Programs) -> None:
    process = programs.start(AT_EXIT)
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    assert "exit handler ran" in programs.log().read_text()


def test_a_death_is_told_with_its_process(programs: Programs) -> None:
    deaths: list[ServerProcess] = []
    programs.server.on_death = deaths.append
    process = programs.start(WAITS)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(20) == -signal.SIGKILL
    assert process.describe_end() == "was killed by SIGKILL"
    programs.server.close(1.0)
    assert deaths == [process]


def test_a_death_is_noticed_though_the_fork_server_is_stuck(programs: Programs) -> None:
    process = programs.start(WAITS)
    os.kill(programs.server.pid, signal.SIGSTOP)
    try:
        process.kill()
        assert process.wait(20) == -signal.SIGKILL
    finally:
        os.kill(programs.server.pid, signal.SIGCONT)


def test_a_dead_servers_group_goes_with_it(programs: Programs, until: Callable[[Callable[[], bool]], None]) -> None:
    process = programs.start(WITH_GRANDCHILD)
    until(lambda: len(marked_processes(programs.server.marker)) == 5)
    members = [pid for pid in marked_processes(programs.server.marker) if os.getpgid(pid) == process.pid]
    assert len(members) == 2
    process.kill()
    process.wait(20)
    until(lambda: not any(map(process_start, members)))


def test_close_ends_servers_and_all_they_started(
    programs: Programs, until: Callable[[Callable[[], bool]], None]
) -> None:
    programs.start(WITH_GRANDCHILD, name="one")
    programs.start(WITH_GRANDCHILD, mode="exec", name="two")
    until(lambda: len(marked_processes(programs.server.marker)) == 8)
    programs.server.close(5.0)
    assert marked_processes(programs.server.marker) == []


def test_daemons_of_servers_stay_in_the_family(programs: Programs, until: Callable[[Callable[[], bool]], None]) -> None:
    server = programs.start(DAEMON)
    own = {server.pid, programs.server.pid}
    [daemon] = [pid for pid in marked_processes(programs.server.marker) if not {pid, os.getsid(pid)} & own]
    assert parent_of(daemon) == programs.server.pid


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_close_kills_what_does_not_listen(programs: Programs) -> None:
    stubborn = programs.start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS)
    programs.server.close(0.1)
    assert stubborn.returncode == -signal.SIGKILL


def test_closing_does_not_wait_for_imports() -> None:
    server = ForkServer()
    server.close(30.0)
    assert server._popen.returncode == -signal.SIGKILL
    assert marked_processes(server.marker) == []


def test_spawning_after_the_fork_servers_death_is_one_sentence(programs: Programs) -> None:
    process = programs.start(WAITS)
    os.kill(programs.server.pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    with pytest.raises(LaunchError, match=r"The process that starts servers \(pid \d+\) ended with code -9"):
        programs.start(WAITS)


LAUNCHER = """
import os, sys
from pathlib import Path
from nemo_gym.launch import fork_server
from nemo_gym.launch.fork_server import ForkServer
from tests.unit.launch.programs import WITH_GRANDCHILD, Programs

fork_server.PRELOADING_ROOM = "nemo_gym.errors"
folder = Path(sys.argv[1])
server = ForkServer()
run = folder / "run-directory"
run.mkdir()
(run / "token").write_text("secret")
server.own(run)
programs = Programs(server, folder)
pids = [programs.start(WITH_GRANDCHILD, mode=mode, name=mode).pid for mode in ("fork", "exec")]
print(server.marker, server.pid, *pids, flush=True)
sys.stdin.read()
"""


@contextmanager
def launcher(folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """A launcher with two servers and their grandchildren: the run's marker, and who is who."""
    popen = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with popen:
        assert popen.stdout is not None
        marker, zygote, forked, executed = popen.stdout.readline().split()
        try:
            pids = {"zygote": zygote, "fork": forked, "exec": executed}
            yield marker, {"launcher": popen.pid, **{name: int(pid) for name, pid in pids.items()}}
        finally:
            popen.kill()


@pytest.mark.parametrize(
    "victims",
    [
        ["launcher"],
        ["zygote", "launcher"],
        ["launcher", "zygote"],
        ["fork", "launcher"],
        ["exec", "zygote", "launcher"],
        ["launcher", "fork", "zygote"],
    ],
    ids=" ".join,
)
def test_kill_9_leaves_nothing(tmp_path: Path, victims: list[str], until: Callable[[Callable[[], bool]], None]) -> None:
    with launcher(tmp_path) as (marker, pids):
        until(lambda: len(marked_processes(marker)) == 8)
        for victim in victims:
            with suppress(ProcessLookupError):  # it may have gone with the one before
                os.kill(pids[victim], signal.SIGKILL)
        until(lambda: marked_processes(marker) == [])
        until(lambda: not (tmp_path / "run-directory").exists())


def test_kill_9_of_the_fork_server_alone_leaves_no_server(
    tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    with launcher(tmp_path) as (marker, pids):
        os.kill(pids["zygote"], signal.SIGKILL)
        until(lambda: marked_processes(marker) == [])
        assert (tmp_path / "run-directory").exists(), "the launcher lives, and the folder is its own"


def test_servers_die_with_the_fork_server_even_without_a_guardian(
    tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    with launcher(tmp_path) as (marker, pids):
        guardian = next(pid for pid in marked_processes(marker) if name_of(pid) == "gym-guardian")
        for victim in (guardian, pids["zygote"]):
            os.kill(victim, signal.SIGKILL)
        until(lambda: process_start(pids["fork"]) is None and process_start(pids["exec"]) is None)
        sweep(marker)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize("victims", [["launcher"], ["zygote"], ["launcher", "zygote"]], ids=" ".join)
def test_kill_9_leaves_nothing_without_pidfds(
    tmp_path: Path, victims: list[str], monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], None]
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/sitecustomize.py").write_text("import os\ndel os.pidfd_open\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "old"))
    with launcher(tmp_path) as (marker, pids):
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
        until(lambda: marked_processes(marker) == [])


def test_a_stuck_fork_server_saves_nobody(tmp_path: Path, until: Callable[[Callable[[], bool]], None]) -> None:
    with launcher(tmp_path) as (marker, pids):
        os.kill(pids["zygote"], signal.SIGSTOP)
        os.kill(pids["launcher"], signal.SIGKILL)
        until(lambda: marked_processes(marker) == [])


def test_a_fork_of_the_launcher_does_not_keep_the_servers(
    tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    fork = "fork = os.fork()\nif fork == 0:\n    sys.stdin.read()\n    os._exit(0)\nprint(fork, flush=True)\n"
    source = LAUNCHER.replace("WITH_GRANDCHILD", "AT_EXIT").replace("print(server", f"{fork}print(server")
    with subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        fork_pid = int(popen.stdout.readline())
        marker = popen.stdout.readline().split()[0]
        popen.kill()
        until(lambda: marked_processes(marker) == [])
        os.kill(fork_pid, signal.SIGKILL)
    assert "exit handler ran" in (tmp_path / "fork.log").read_text(), "they were asked before they were killed"


def test_a_launcher_that_just_ends_leaves_nothing(tmp_path: Path, until: Callable[[Callable[[], bool]], None]) -> None:
    source = LAUNCHER.replace("sys.stdin.read()", "")
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path)], capture_output=True, text=True, check=True)
    marker = done.stdout.split()[0]
    until(lambda: marked_processes(marker) == [])


def test_what_was_stopped_ends_in_order_too(programs: Programs) -> None:
    """A SIGSTOP to the fork server and to a server costs no grace: both go on, and end as they do otherwise."""
    process = programs.start(AT_EXIT)
    os.kill(programs.server.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGSTOP)
    programs.server.close(20.0)
    assert programs.log().read_text() == "exit handler ran\n"
    assert programs.server._popen.returncode == 0
    assert process.returncode == 143


def test_a_stopped_fork_server_starts_servers(programs: Programs) -> None:
    programs.start(WAITS)
    os.kill(programs.server.pid, signal.SIGSTOP)
    assert programs.start(WAITS, name="second").returncode is None
