"""What is made of what a run's processes say: stages, counts, and sentences about what is stuck."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.launch.ages import shown_seconds
from nemo_gym.launch.findings import findings
from nemo_gym.launch.inspection import inspect
from nemo_gym.launch.leftovers import kill_leftovers
from nemo_gym.launch.linux import process_start
from nemo_gym.launch.process_stats import process_stats
from nemo_gym.launch.rollout_stages import Rollouts, key_of_entry, shown_key, stage_of
from nemo_gym.launch.rounds import Rounds
from nemo_gym.launch.run_directory import RunInfo
from nemo_gym.launch.silence import SilenceWatch
from nemo_gym.launch.tables import ask_all
from nemo_gym.launch.view import BackendView, CollectorView, ProcessView, RolloutView, RunView
from nemo_gym.serve.control_socket import listen, serve_one

Until = Callable[[Callable[[], bool]], None]
TYPES = {"mcqa": "resources_servers", "agent": "responses_api_agents", "policy": "responses_api_models"}


def request(server: str, path: str, age: float, rollout: str | None = "17-2", *calls: Any) -> dict[str, Any]:
    called = [{"server": name, "path": where, "age_s": since} for name, where, since in calls]
    return {"server": server, "path": path, "rollout": rollout, "age_s": age, "calls": called}


def entry(task: int, state: str = "running", seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    plain = {"task": task, "repeat": 2, "rollout_id": None, "attempt": 0, "server": "env", "retries": 0}
    return {**plain, "state": state, "seconds": seconds, **more}


@pytest.mark.parametrize(
    ("server", "path", "stage"),
    [
        ("policy", "/v1/responses", ("model", "/v1/responses")),
        ("mcqa", "/seed_session", ("seed", "")),
        ("mcqa", "/verify", ("verify", "")),
        ("mcqa", "/get_weather", ("tool", "get_weather")),
        ("agent", "/run", ("agent", "")),
        ("unheard", "/run", ("agent", "")),
        ("mcqa", "/reset", ("seed", "")),
        ("mcqa", "/step", ("tool", "step")),
        ("mcqa", "/close", ("close", "")),
    ],
)
def test_a_path_is_a_stage(server: str, path: str, stage: tuple[str, str]) -> None:
    assert stage_of(TYPES.get(server, ""), path) == stage


@pytest.mark.parametrize(
    ("key", "shown"),
    [("17-2", "17-2"), ("17-2.r1", "17-2"), ("17-2-a1", "17-2 (attempt 1)"), ("my-own.id", "my-own.id")],
)
def test_a_rollout_is_shown_as_people_write_it(key: str, shown: str) -> None:
    assert shown_key(key) == shown


@pytest.mark.parametrize(
    ("fields", "key"),
    [({}, "17-2"), ({"attempt": 1}, "17-2-a1"), ({"rollout_id": "17-2.r1"}, "17-2.r1")],
)
def test_a_collectors_rollout_has_the_key_of_its_requests(fields: dict[str, Any], key: str) -> None:
    assert key_of_entry(entry(17, **fields)) == key


def view_of(*requests: dict[str, Any], told: Mapping[str, Any] | None = None) -> RolloutView:
    rollouts = Rollouts(TYPES)
    rollouts.add_entries([] if told is None else [told])
    rollouts.add_requests(requests)
    (view,) = rollouts.views()
    return view


def test_a_rollout_is_where_its_innermost_request_is() -> None:
    """B32: the chain of servers ends at the one that is waited for."""
    view = view_of(
        request("agent", "/run", 315.0, "17-2", ("agent", "/v1/responses", 314.0)),
        request("agent", "/v1/responses", 314.0, "17-2", ("policy", "/v1/responses", 312.1)),
        request("policy", "/v1/responses", 312.0),
        told=entry(17, seconds=316.0),
    )
    assert (view.rollout, view.stage, view.server, view.stage_s, view.age_s) == ("17-2", "model", "policy", 312.0, 316)


def test_a_server_that_says_nothing_is_known_from_its_caller() -> None:
    """B30, B40: a hanging server's own table is not needed to see who waits for it."""
    view = view_of(request("agent", "/run", 315.0, "17-2", ("mcqa", "/get_weather", 312.0)))
    assert (view.stage, view.server, view.stage_s, view.detail) == ("tool", "mcqa", 312.0, "get_weather")


def test_of_several_tool_calls_the_longest_counts() -> None:
    view = view_of(
        request("agent", "/run", 9.0, "17-2", ("mcqa", "/a", 8.0), ("mcqa", "/b", 7.0)),
        request("mcqa", "/b", 7.0),
        request("mcqa", "/a", 8.0),
    )
    assert (view.detail, view.stage_s) == ("a", 8.0)


@pytest.mark.parametrize(("state", "stage"), [("running", "running"), ("waiting_to_retry", "retry")])
def test_what_no_server_has_is_where_the_collector_says(state: str, stage: str) -> None:
    view = view_of(told=entry(17, state, 4.0, retries=2))
    assert (view.stage, view.server, view.stage_s, view.retries) == (stage, "env", 4.0, 2)


def test_what_waits_for_its_turn_is_not_under_way() -> None:
    rollouts = Rollouts(TYPES)
    rollouts.add_entries([entry(1, "queued", 900.0), entry(2, "running", 3.0), entry(3, "running", 5.0)])
    rollouts.add_requests([request("policy", "/v1/responses", 1.0, rollout=None)])
    assert [view.rollout for view in rollouts.views()] == ["3-2", "2-2"]


# --- sentences ---


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.42, "0.4 s"), (12.3, "12 s"), (312.0, "5 min 12 s"), (7500.0, "2 h 5 min")]
)
def test_ages_are_words(seconds: float, text: str) -> None:
    assert shown_seconds(seconds) == text


def run_view(**fields: Any) -> RunView:
    return RunView(as_of=0.0, port=1, pid=7, command="gym", uptime_s=1.0, **fields)


def test_a_rollout_that_is_stuck_is_named_with_its_server() -> None:
    """Gym#2859: which are stuck, where and for how long."""
    view = run_view(rollouts=[RolloutView("17-2", "model", "policy", 312.0, 315.0, "/v1/responses")])
    assert findings(view, is_launcher_silent=False) == [
        "Oldest: rollout 17-2 has waited 5 min 12 s in model at policy (/v1/responses)."
    ]


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (
            ProcessView("mcqa", ["mcqa"], 9, "running", answers=False, silent_s=12.2, letter="T"),
            "mcqa (pid 9) gives no answer, for 12 s now: it is stopped, as by SIGSTOP; `kill -CONT 9` lets it go on",
        ),
        (
            ProcessView("shard-2", ["a", "b"], 9, "running", answers=False, letter="R"),
            "shard-2 (a, b) (pid 9) gives no answer: something blocks its event loop; `gym env restart shard-2`",
        ),
        (
            ProcessView("a", ["a"], 9, "restarting", last_end="was killed by SIGKILL"),
            "a is being started again: its process was killed by SIGKILL.",
        ),
        (
            ProcessView("a", ["a"], 9, "ended", last_end="exited with code 1"),
            "a died and is not started again: its process exited",
        ),
        (ProcessView("a", ["a"], 9, "starting"), "a (pid 9) is still starting."),
        (ProcessView("a", ["a"], 9, "unknown", is_there=False), "a died: there is no process 9 any more."),
        (
            ProcessView("a", ["a"], 9, "running", restarts=1, last_end="was killed by SIGKILL", answers=True),
            "a died and serves again (pid 9): its process before was killed by SIGKILL.",
        ),
    ],
)
def test_a_process_in_trouble_comes_first(process: ProcessView, words: str) -> None:
    """B26, B35: dead, blocked and stopped servers are told apart, each with what to do."""
    rollouts = [RolloutView("17-2", "verify", "mcqa", 1.0, 1.0)]
    first, *_ = findings(run_view(processes=[process], rollouts=rollouts), is_launcher_silent=False)
    assert first.startswith(words)


def test_pressure_and_silence_of_others_are_told() -> None:
    admission = {"limit": 8, "asked": 256}
    view = run_view(collectors=[CollectorView(5, False), CollectorView(6, True, admission=admission)])
    told = findings(view, is_launcher_silent=True)
    assert told == [
        "The run's own process (pid 7) gives no answer, so nothing starts servers again now.",
        "The collector (pid 5) gives no answer.",
        "The model's provider asked for fewer requests: at most 8 rollouts run at once instead of 256 now.",
        "No rollout is in flight.",
    ]


def test_what_a_provider_wants_is_told_with_whom_it_stops() -> None:
    """A back-off (429) and a refused key are why a run is slow, or fails: both by address."""
    waits = BackendView("http://a/v1", ["policy"], 429, 12.3)
    refuses = BackendView("http://b/v1", ["judge", "policy"], 401, 50.0, "refuses the API key")
    assert findings(run_view(backends=[waits, refuses]), is_launcher_silent=False)[:2] == [
        "http://a/v1 asked for fewer calls (HTTP 429): policy waits, for 12 s more.",
        (
            "http://b/v1 refuses the API key (HTTP 401), so every call of judge, policy fails at once: "
            "set that right and start the servers again."
        ),
    ]


# --- asking ---


class Folder:
    """A run's folder in which somebody answers at sockets."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self._stack = stack
        for name in ("tables", "collectors"):
            (path / name).mkdir(parents=True)

    def answers(self, where: str, what: Callable[[str, Mapping[str, Any]], Any]) -> None:
        folder = self.path / where
        bound = self._stack.enter_context(listen(folder.parent, folder.name))
        thread = threading.Thread(target=self._serve, args=(bound, what), daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(bound.shutdown, socket.SHUT_RDWR)

    def is_silent(self, where: str) -> None:
        folder = self.path / where
        self._stack.enter_context(listen(folder.parent, folder.name))

    def _serve(self, bound: socket.socket, what: Callable[[str, Mapping[str, Any]], Any]) -> None:
        while True:
            try:
                serve_one(bound, what)
            except OSError:
                return


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with ExitStack() as stack:
        yield Folder(tmp_path / "run", stack)


def record(name: str) -> dict[str, Any]:
    return {
        "process_name": name,
        "server_type": TYPES[name],
        "name": f"simple_{name}",
        "pid": os.getpid(),
        "start_time": time.time() - 60,
        "url": f"http://127.0.0.1/{name}",
    }


def run_info(folder: Folder) -> RunInfo:
    started = process_start(os.getpid()) or ""
    return RunInfo(folder.path, os.getpid(), started, "127.0.0.1", 11000, "gym env start", list(map(record, TYPES)))


def process(name: str, servers: list[str], pid: int, **more: Any) -> dict[str, Any]:
    plain = {"state": "running", "restarts": 0, "last_end": None, "silent_s": 1.0}
    return {"process": name, "servers": servers, "pid": pid, **plain, **more}


def table(pid: int, requests: list[dict[str, Any]], **in_flight: int) -> Callable[[str, Mapping[str, Any]], Any]:
    def answer(op: str, arguments: Mapping[str, Any]) -> Any:
        wanted = arguments.get("rollouts")
        told = [each for each in requests if wanted is None or each["rollout"] in wanted][: arguments["limit"]]
        servers = {
            name: {
                "in_flight": count,
                "oldest_s": 5.0 if count else None,
                "served": 3,
                "sessions": 2,
                "paths": {"/v1/responses" if name == "policy" else "/run": count} if count else {},
            }
            for name, count in in_flight.items()
        }
        return {"pid": pid, "servers": servers, "requests": told}

    return answer


def collector(entries: list[dict[str, Any]], **counts: int) -> Callable[[str, Mapping[str, Any]], Any]:
    def answer(op: str, arguments: Mapping[str, Any]) -> Any:
        told = {
            "entries": entries[: arguments["limit"]],
            "counts": counts,
            "ended": {"done": 10, "failed": 1, "drained": 0},
            "retries": 4,
            "planned": 40,
            "per_second": 2.5,
            "admission": {"limit": 8, "asked": 8, "in_flight": 8, "waiting": 3},
        }
        return {"pid": 1, "tables": [told]}

    return answer


def test_a_run_is_put_together_from_everybodys_answers(folder: Folder) -> None:
    own, parent = os.getpid(), os.getppid()
    processes = [process("shard-1", ["mcqa", "agent"], own), process("policy", ["policy"], parent, restarts=2)]
    folder.answers("control.sock", lambda op, arguments: {"processes": processes})
    calls = ("policy", "/v1/responses", 4.0)
    folder.answers(f"tables/{own}.sock", table(own, [request("agent", "/run", 5.0, "17-2", calls)], mcqa=0, agent=1))
    folder.answers(f"tables/{parent}.sock", table(parent, [request("policy", "/v1/responses", 4.0)], policy=1))
    folder.answers("collectors/77.sock", collector([entry(17), entry(18, "queued")], running=1, queued=1))
    view = inspect(run_info(folder))
    mcqa, agent, policy = view.servers
    assert (mcqa.in_flight, mcqa.oldest_s, agent.in_flight, agent.oldest_s) == (0, None, 1, 5.0)
    assert (policy.pid, policy.restarts, policy.processes, policy.served) == (parent, 2, ["policy"], 3)
    assert mcqa.cpu_s and mcqa.memory_bytes and mcqa.memory_bytes > 1 << 20 and 59 < (mcqa.uptime_s or 0) < 600
    assert view.stages == {"model": 1, "queued": 1}
    assert [(each.rollout, each.server) for each in view.rollouts] == [("17-2", "policy")]
    (told,) = view.collectors
    assert (told.pid, told.done, told.failed, told.retries, told.per_second) == (77, 10, 1, 4, 2.5)
    assert told.planned == 40
    assert view.findings == ["Oldest: rollout 17-2 has waited 4.0 s in model at policy (/v1/responses)."]
    shown = json.loads(json.dumps(view.as_json()))
    assert shown["version"] == 1 and shown["servers"][2]["name"] == "policy"


def test_backends_are_those_of_model_servers_and_told_once(folder: Folder) -> None:
    own, parent = os.getpid(), os.getppid()
    processes = [process("shard-1", ["mcqa", "policy"], own), process("shard-2", ["mcqa", "policy"], parent)]
    folder.answers("control.sock", lambda op, arguments: {"processes": processes})

    def waits(pid: int, seconds: float) -> None:
        told = {"url": "http://a/v1", "status": 429, "seconds": seconds, "refuses": None}
        plain = table(pid, [], policy=0)
        folder.answers(f"tables/{pid}.sock", lambda op, arguments: plain(op, arguments) | {"backends": [told]})

    waits(own, 3.0)
    waits(parent, 9.0)
    view = inspect(run_info(folder))
    assert view.backends == [BackendView("http://a/v1", ["policy"], 429, 9.0)]
    assert view.findings[0] == "http://a/v1 asked for fewer calls (HTTP 429): policy waits, for 9.0 s more."


def test_a_server_whose_process_is_gone_is_said_to_have_died(folder: Folder) -> None:
    """A launcher that says nothing can't tell of deaths: the system can."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder.answers("control.sock", lambda op, arguments: {"processes": [process("policy", ["policy"], gone.pid)]})
    assert inspect(run_info(folder)).findings[0] == f"policy died: there is no process {gone.pid} any more."


def test_an_agents_call_of_itself_is_not_another_rollout(folder: Folder) -> None:
    pid = os.getpid()
    folder.answers("control.sock", lambda op, arguments: {"processes": [process("agent", ["agent"], pid)]})

    def told(op: str, arguments: Mapping[str, Any]) -> Any:
        counts = {"in_flight": 11, "oldest_s": 5.0, "served": 3, "sessions": 0}
        return {"servers": {"agent": {**counts, "paths": {"/run": 6, "/v1/responses": 5}}}, "requests": []}

    folder.answers(f"tables/{pid}.sock", told)
    agent = next(server for server in inspect(run_info(folder)).servers if server.name == "agent")
    assert agent.in_flight == 6


def test_nobody_who_hangs_delays_the_answer_for_long(folder: Folder) -> None:
    """B32: SIGSTOP of everything still leaves an answer."""
    for name in ("control.sock", f"tables/{os.getpid()}.sock", "collectors/77.sock"):
        folder.is_silent(name)
    view = inspect(run_info(folder))
    assert [server.answers for server in view.servers] == [False] * 3
    assert "The run's own process" in view.findings[0] and "The collector (pid 77)" in view.findings[-2]
    assert any("mcqa" in finding and "gives no answer" in finding for finding in view.findings)


def test_a_big_run_is_counted_whole_and_told_in_part(folder: Folder) -> None:
    pid = os.getpid()
    many = [request("policy", "/v1/responses", 900.0 - number, f"{number}-2") for number in range(500)]
    folder.answers("control.sock", lambda op, arguments: {"processes": [process("policy", list(TYPES), pid)]})
    folder.answers(f"tables/{pid}.sock", table(pid, many, policy=500))
    folder.answers("collectors/77.sock", collector([entry(n, seconds=900.0 - n) for n in range(600)], running=600))
    view = inspect(run_info(folder), rollouts=3)
    assert [each.rollout for each in view.rollouts] == ["0-2", "1-2", "2-2"]
    assert {each.stage for each in view.rollouts} == {"model"}
    assert view.stages == {"model": 500, "agent": 100}


def test_rollouts_that_are_old_are_found_though_their_calls_are_young(folder: Folder) -> None:
    """B32: among thousands of calls the ones of the oldest rollouts are asked for by name."""
    pid = os.getpid()
    calls = [request("policy", "/v1/responses", 9.0, f"{number}-2") for number in range(400)]
    last = [request("policy", "/v1/responses", 1.0, "999-2")]
    folder.answers("control.sock", lambda op, arguments: {"processes": [process("policy", list(TYPES), pid)]})
    folder.answers(f"tables/{pid}.sock", table(pid, [*calls, *last], policy=401))
    folder.answers("collectors/77.sock", collector([entry(999, seconds=900.0)], running=401))
    views = {each.rollout: each for each in inspect(run_info(folder), rollouts=1000).rollouts}
    assert (views["999-2"].stage, views["999-2"].stage_s, views["999-2"].age_s) == ("model", 1.0, 900.0)
    assert views["0-2"].stage_s == 9.0


def test_a_socket_nobody_listens_at_is_removed(folder: Folder) -> None:
    listen(folder.path / "tables", "9.sock").close()
    (folder.path / "tables" / "other.txt").touch()
    assert ask_all(folder.path / "tables", "in_flight", seconds=1.0) == {}
    assert [path.name for path in (folder.path / "tables").iterdir()] == ["other.txt"]


def test_long_silence_is_told_once(folder: Folder) -> None:
    """B26, B32: a server that lives and hangs is noticed by the run itself."""
    now, told = [100.0], list[str]()
    watch = SilenceWatch(folder.path, {9: "mcqa"}.get, told.append, clock=lambda: now[0])
    folder.is_silent("tables/9.sock")
    watch.look(0.01)
    assert watch.silent_for(9) == 0.0 and watch.silent_for(8) is None
    for now[0] in (110.0, 131.0, 140.0):
        watch.look(0.01)
    assert watch.silent_for(9) == 40.0
    assert len(told) == 1 and told[0].startswith("mcqa (pid 9) has said nothing for 31 s: ")


class Watched:
    """A watch over process 9 and its clock; keeps who was given up."""

    def __init__(self, folder: Folder, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        monkeypatch.setattr("nemo_gym.launch.silence.LAST_WORD_SECONDS", 0.05)
        self.now = 100.0
        self.lost: list[tuple[int, str]] = []
        give_up = lambda pid, why: self.lost.append((pid, why))  # noqa: E731
        self.watch = SilenceWatch(
            folder.path, {9: "mcqa"}.get, lambda _: None, give_up, clock=lambda: self.now, **options
        )

    def look_until(self, moment: float) -> None:
        while self.now < moment:
            self.now += 25.0
            self.watch.look(0.01)


def test_one_that_hangs_for_long_is_given_up_once(
    folder: Folder, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B32: alive is not enough; what says nothing for five minutes is started again."""
    folder.is_silent("tables/9.sock")
    watched = Watched(folder, monkeypatch)
    watched.look_until(400.0)
    assert watched.lost == []
    watched.look_until(425.0)
    until(lambda: watched.lost == [(9, "said nothing for 300 s")])
    watched.look_until(900.0)
    assert len(watched.lost) == 1


def test_a_watch_looks_by_itself_until_it_is_stopped_and_loses_nobody_afterwards(
    folder: Folder, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("nemo_gym.launch.silence.ask_one", lambda *_, **__: asked.append(9))
    folder.is_silent("tables/9.sock")
    watched = Watched(folder, monkeypatch)
    watched.watch._rounds = Rounds(lambda: watched.look_until(100.0), seconds=0.001, name="silence")
    watched.now = 75.0
    watched.watch.start()
    until(lambda: watched.watch.silent_for(9) is not None)
    watched.watch.stop()
    watched.look_until(425.0)
    until(lambda: asked == [9] and not any(thread.name == "gym-last-word-9" for thread in threading.enumerate()))
    assert watched.lost == []


def test_one_with_a_pulse_is_not_given_up_for_saying_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its loop turns is known better than by what it answers."""
    folder.is_silent("tables/9.sock")
    (folder.path / "tables" / "9.pulse").touch()
    watched = Watched(folder, monkeypatch)
    watched.look_until(900.0)
    assert watched.lost == [] and not any(thread.name == "gym-last-word-9" for thread in threading.enumerate())


def test_one_that_is_merely_slow_is_kept(folder: Folder, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rollouts make an event loop slow: the last question is a patient one."""
    answered = threading.Event()

    def slow(op: str, arguments: Mapping[str, Any]) -> Any:
        answered.set()
        return {"servers": {}, "requests": []}

    watched = Watched(folder, monkeypatch)
    monkeypatch.setattr("nemo_gym.launch.silence.LAST_WORD_SECONDS", 20.0)
    monkeypatch.setattr("nemo_gym.launch.silence.ask_all", lambda *_, **__: {9: None})
    folder.answers("tables/9.sock", slow)
    watched.look_until(450.0)
    until(answered.is_set)
    until(lambda: 9 not in watched.watch._given_up)
    assert watched.lost == []


def test_a_stopped_process_is_given_up_though_it_has_no_table(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = {9}
    watched = Watched(folder, monkeypatch, servers=lambda: [9, 10], is_stopped=stopped.__contains__)
    watched.look_until(125.0)
    stopped.clear()
    watched.look_until(150.0)
    stopped.add(9)
    watched.look_until(175.0)
    assert watched.lost == [], "it went on in between"
    watched.look_until(225.0)
    assert watched.lost == [(9, "was stopped, as by SIGSTOP, for 30 s")]


def test_a_launcher_that_was_stopped_itself_blames_nobody(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.is_silent("tables/9.sock")
    watched = Watched(folder, monkeypatch, servers=lambda: [9], is_stopped=lambda pid: True)
    watched.look_until(125.0)
    watched.now = 5000.0
    watched.watch.look(0.01)
    assert watched.lost == []
    assert (watched.watch.silent_for(9) or 0.0) < 60


def test_an_answer_ends_a_silence(folder: Folder) -> None:
    now, told = [100.0], list[str]()
    watch = SilenceWatch(folder.path, {9: "mcqa"}.get, told.append, clock=lambda: now[0])
    folder.answers("tables/9.sock", table(9, [], mcqa=0))
    watch.look(20.0)
    now[0] = 150.0
    assert watch.silent_for(9) == 50.0
    watch.look(20.0)
    assert watch.silent_for(9) == 0.0 and told == []


# --- processes ---


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    source = "import subprocess, sys; subprocess.Popen(['sleep', '300']).wait()"
    child = subprocess.Popen([sys.executable, "-c", source], start_new_session=True)
    yield child
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_figures_are_of_the_whole_tree_and_a_stopped_process_is_known(
    sleeper: subprocess.Popen[bytes], until: Until
) -> None:
    children = Path(f"/proc/{sleeper.pid}/task/{sleeper.pid}/children")
    until(lambda: bool(children.read_text().split()))
    alone = process_stats([int(children.read_text())])
    both = process_stats([sleeper.pid, 2**30])
    assert list(both) == [sleeper.pid]
    assert both[sleeper.pid].memory_bytes > next(iter(alone.values())).memory_bytes > 0
    until(lambda: process_stats([sleeper.pid])[sleeper.pid].letter == "S")
    os.kill(sleeper.pid, signal.SIGSTOP)
    until(lambda: process_stats([sleeper.pid])[sleeper.pid].letter == "T")


def test_what_a_dead_server_left_in_another_session_is_killed(tmp_path: Path) -> None:
    """B21: its successor must not meet it; what works for others stays."""

    def start(instance: str, run: Path) -> subprocess.Popen[bytes]:
        variables = {"NEMO_GYM_CONFIG_PATH": instance, "NEMO_GYM_RUN_DIR": str(run)}
        return subprocess.Popen(["sleep", "300"], start_new_session=True, env={**os.environ, **variables})

    mine, spared, others, elsewhere = (
        start("mcqa", tmp_path),
        start("mcqa", tmp_path),
        start("policy", tmp_path),
        start("mcqa", tmp_path / "other"),
    )
    try:
        assert kill_leftovers(tmp_path, ["mcqa"], {spared.pid}) == [mine.pid]
        assert mine.wait(20) == -signal.SIGKILL
        assert [each.poll() for each in (spared, others, elsewhere)] == [None] * 3
    finally:
        for each in (mine, spared, others, elsewhere):
            each.kill()
            each.wait()
