"""Looking at a run from outside: its processes, tables and collectors asked once, and made one view."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nemo_gym.config.handover import COLLECTORS_FOLDER_NAME, TABLES_FOLDER_NAME
from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_MODELS
from nemo_gym.launch.findings import findings
from nemo_gym.launch.linux import IS_LINUX, parent_of, seconds_since_start
from nemo_gym.launch.process_stats import ProcessStats, process_stats
from nemo_gym.launch.rollout_stages import Rollouts, stage_of
from nemo_gym.launch.run_directory import RunInfo
from nemo_gym.launch.run_files import CONTROL_SOCKET_NAME
from nemo_gym.launch.tables import Told, ask_all
from nemo_gym.launch.view import BackendView, CollectorView, ProcessView, RunView, ServerView, WaitView
from nemo_gym.serve.control_socket import NoAnswerError, RefusedError, ask
from nemo_gym.serve.pulse import read_held

ASKED_SECONDS = 0.3
SHOWN_ROLLOUTS = 20
_MOST_ROWS = 200
_STATES = ("ended", "restarting", "starting", "running")
"""Of several processes the server is as badly off as the first of these."""


def inspect(info: RunInfo, *, rollouts: int = SHOWN_ROLLOUTS) -> RunView:
    """The run now, with at most `rollouts` of those in flight; takes half a second at most, whoever doesn't answer."""
    return _Inspection(info).view(max(0, rollouts))


_Number = TypeVar("_Number", int, float)


@dataclass
class _Inspection:
    info: RunInfo
    now: float = field(default_factory=time.time)
    processes: list[dict[str, Any]] = field(default_factory=list)
    waits: list[dict[str, Any]] = field(default_factory=list)
    tables: Told = field(default_factory=dict)
    stats: Mapping[int, ProcessStats] = field(default_factory=dict)

    def view(self, most: int) -> RunView:
        with ThreadPoolExecutor(3) as pool:
            launcher = pool.submit(self._ask_launcher)
            tables = pool.submit(self._ask_tables, limit=_MOST_ROWS)
            collectors_told = pool.submit(self._ask_collectors)
        launcher_answers, self.tables, told = launcher.result(), tables.result(), collectors_told.result()
        self.stats = process_stats([process["pid"] for process in self.processes if process["pid"]])
        processes = [self._process(process) for process in self.processes]
        servers = [self._server(record, processes) for record in self.info.servers]
        collectors = [_collector(pid, answer) for pid, answer in told.items()]
        found = self._rollouts(told, most)
        views = found.views()
        is_cut = any(map(_is_cut, (*self.tables.values(), *told.values())))
        stages = self._counted_stages(collectors) if is_cut else Counter[str](view.stage for view in views)
        stages.update(_waiting(collectors) if is_cut else {"queued": _waiting(collectors)["queued"]})
        view = RunView(
            as_of=self.now,
            port=self.info.head_port,
            pid=self.info.pid,
            command=self.info.command,
            uptime_s=seconds_since_start(self.info.started),
            servers=servers,
            processes=processes,
            collectors=collectors,
            backends=self._backends(processes),
            waits=[WaitView(**told) for told in self.waits],
            stages={stage: count for stage, count in stages.most_common() if count},
            rollouts=views[:most],
        )
        view.findings = findings(view, is_launcher_silent=not launcher_answers)
        return view

    def _ask_launcher(self) -> bool:
        """Whether the launcher answers; what it doesn't tell is made up from the run's file."""
        try:
            told = ask(self.info.directory, CONTROL_SOCKET_NAME, "servers", seconds=ASKED_SECONDS)
            self.processes, self.waits = list(told["processes"]), list(told.get("waits", ()))
            return True
        except (NoAnswerError, RefusedError) as error:
            unknown = {"restarts": 0, "last_end": None, "silent_s": None}
            self.processes = [
                {"process": name, "servers": [name], "pid": record["pid"], "state": "unknown", **unknown}
                for record in self.info.servers
                if (name := record["process_name"])
            ]
            return isinstance(error, NoAnswerError) and not error.is_listening

    def _ask_tables(self, **arguments: Any) -> Told:
        return ask_all(self.info.directory / TABLES_FOLDER_NAME, "in_flight", seconds=ASKED_SECONDS, **arguments)

    def _ask_collectors(self) -> Told:
        folder = self.info.directory / COLLECTORS_FOLDER_NAME
        return ask_all(folder, "rollouts", seconds=ASKED_SECONDS, limit=_MOST_ROWS)

    def _rollouts(self, collectors: Told, most: int) -> Rollouts:
        found = Rollouts({record["process_name"]: record["server_type"] for record in self.info.servers})
        for answer in collectors.values():
            for table in answer["tables"] if answer is not None else ():
                found.add_entries(table["entries"])
        tables = self.tables
        if any(map(_is_cut, tables.values())) and most:
            found.add_requests(_requests(tables.values()))
            tables = self._ask_tables(limit=_MOST_ROWS * 3, rollouts=found.longest(_MOST_ROWS))
            found = found.without_requests()
        found.add_requests(_requests(tables.values()))
        return found

    def _process(self, told: Mapping[str, Any]) -> ProcessView:
        pid = told["pid"]
        view = ProcessView(told["process"], told["servers"], pid, told["state"], told["restarts"], told["last_end"])
        if (figures := self.stats.get(pid)) is not None:
            view.cpu_s, view.memory_bytes, view.letter = figures.cpu_seconds, figures.memory_bytes, figures.letter
        elif IS_LINUX and pid is not None and told["state"] in ("running", "unknown"):
            view.is_there = False
        answers = self._answers_of(pid)
        if answers:
            view.answers, view.silent_s = all(answer is not None for answer in answers), told["silent_s"]
            held = None if view.answers else read_held(self.info.directory / TABLES_FOLDER_NAME, pid)
            view.held = "" if held is None else held.shown
        return view

    def _answers_of(self, pid: int) -> list[dict[str, Any] | None]:
        """The tables of a process, or of its workers."""
        return [answer for teller, answer in self.tables.items() if pid in (teller, parent_of(teller))]

    def _server(self, record: Mapping[str, Any], processes: Iterable[ProcessView]) -> ServerView:
        name = record["process_name"]
        mine = [process for process in processes if name in process.servers]
        view = ServerView(
            name=name,
            server_type=record["server_type"],
            implementation=record["name"],
            pid=mine[0].pid if mine else record["pid"],
            processes=[process.name for process in mine],
            state=min((process.state for process in mine), key=_badness, default="unknown"),
            restarts=sum(process.restarts for process in mine),
            uptime_s=max(0.0, round(self.now - float(record["start_time"]), 1)),
            cpu_s=_sum(process.cpu_s for process in mine),
            memory_bytes=_sum(process.memory_bytes for process in mine),
            answers=None if all(process.answers is None for process in mine) else all(p.answers for p in mine),
            url=record["url"],
        )
        answers = [answer for process in mine if process.pid for answer in self._answers_of(process.pid)]
        counts = [answer["servers"][name] for answer in answers if answer and name in answer["servers"]]
        if counts:
            view.in_flight, view.served, view.sessions = (
                sum(count[key] for count in counts) for key in ("in_flight", "served", "sessions")
            )
            view.in_flight -= sum(map(_own_calls, counts))
            view.oldest_s = max((count["oldest_s"] for count in counts if count["oldest_s"] is not None), default=None)
        return view

    def _backends(self, processes: Iterable[ProcessView]) -> list[BackendView]:
        """The longest wait for each endpoint and reason; several processes may wait for the same."""
        types = {record["process_name"]: record["server_type"] for record in self.info.servers}
        found: dict[tuple[str, str | None], BackendView] = {}
        for process in processes:
            models = [name for name in process.servers if types.get(name) == RESPONSES_API_MODELS]
            for answer in self._answers_of(process.pid) if process.pid else ():
                for told in answer.get("backends", ()) if answer is not None else ():
                    view = found.setdefault((told["url"], told["refuses"]), BackendView(of=[], **told))
                    view.seconds = max(view.seconds, told["seconds"])
                    view.of = list(dict.fromkeys([*view.of, *(models or process.servers)]))
        return list(found.values())

    def _counted_stages(self, collectors: list[CollectorView]) -> Counter[str]:
        """How many rollouts are in each stage, where not all of them are told of one by one."""
        types = {record["process_name"]: record["server_type"] for record in self.info.servers}
        counts: Counter[str] = Counter()
        runs = 0
        for answer in self.tables.values():
            for name, server in answer["servers"].items() if answer is not None else ():
                if types.get(name) in (RESPONSES_API_MODELS, RESOURCES_SERVERS):
                    for path, count in server["paths"].items():
                        counts[stage_of(types[name], path)[0]] += count
                else:
                    runs += server["paths"].get("/run", 0)
        running = sum(collector.states.get("running", 0) for collector in collectors)
        counts["agent"] = max(0, max(runs, running) - counts.total())
        return counts


def _own_calls(count: Mapping[str, Any]) -> int:
    """Requests that are part of others at the same server: an agent's `/run` asks its own `/v1/responses`."""
    return min(int(count["paths"].get(path, 0)) for path in ("/run", "/v1/responses"))


def _requests(answers: Iterable[dict[str, Any] | None]) -> Iterable[dict[str, Any]]:
    for answer in answers:
        yield from answer["requests"] if answer is not None else ()


def _is_cut(answer: Mapping[str, Any] | None) -> bool:
    """Whether a process has more requests, or rollouts, than it told of."""
    if answer is None:
        return False
    if "tables" in answer:
        return any(sum(table["counts"].values()) > len(table["entries"]) for table in answer["tables"])
    return bool(sum(server["in_flight"] for server in answer["servers"].values()) > len(answer["requests"]))


def _waiting(collectors: Iterable[CollectorView]) -> Counter[str]:
    """The rollouts that no server has at the moment, by their stages."""
    counts: Counter[str] = Counter()
    for collector in collectors:
        counts["queued"] += collector.states.get("queued", 0)
        counts["retry"] += collector.states.get("waiting_to_retry", 0)
    return counts


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None


def _badness(state: str) -> int:
    return _STATES.index(state) if state in _STATES else len(_STATES)


def _collector(pid: int, answer: Mapping[str, Any] | None) -> CollectorView:
    view = CollectorView(pid, answers=answer is not None)
    for table in answer["tables"] if answer is not None else ():
        view.done += table["ended"]["done"]
        view.failed += table["ended"]["failed"]
        view.retries += table["retries"]
        if (planned := table.get("planned")) is not None:
            view.planned = (view.planned or 0) + planned
        view.per_second = round(view.per_second + table["per_second"], 3)
        for state, count in table["counts"].items():
            view.states[state] = view.states.get(state, 0) + count
        view.admission = table["admission"] or view.admission
    return view
