"""One cell: start, wait for the moment, hurt the victim, see what is left, resume, and compare with a quiet run."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.faults.books import Key, coverage_lines, misplaced_offsets, torn_files
from tests.faults.cells import SERVERS, Cell, Fault, Moment, Victim
from tests.faults.injections import InjectionError, reset_sockets
from tests.faults.processes import victim_pid
from tests.faults.scene import STAGE_SECONDS, Command, Scene
from tests.faults.waiting import wait_until

REACH_SECONDS = 30.0
END_SECONDS = 40.0
STOPPED_SECONDS = STAGE_SECONDS + 1.0
_SIGNALS = {Fault.TERM: signal.SIGTERM, Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP}
_POINTS = {
    Moment.STARTUP: "startup",
    Moment.TOOL: "tool",
    Moment.VERIFY: "verify",
    Moment.RECORD: "record",
    Moment.AGGREGATE: "aggregate",
}
_LET_THROUGH = {Moment.TOOL: 2, Moment.VERIFY: 2, Moment.RECORD: 2}


@dataclass(frozen=True)
class Quiet:
    """What an undisturbed run of the same set leaves."""

    keys: Counter[Key]
    coverage: list[str]
    code: int | None
    tool_calls: int
    seconds: float


@dataclass
class Outcome:
    """How a cell ended. `seen` says what happened, `problems` what should not have."""

    name: str
    seconds: float = 0.0
    seen: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: str | None = None

    @property
    def verdict(self) -> str:
        return "skipped" if self.skipped else "FAIL" if self.problems else "pass"


def quiet_run(scene: Scene, *, shared: bool) -> tuple[Quiet, list[str]]:
    """The undisturbed run and what is wrong with it."""
    started = time.monotonic()
    with scene.prepared():
        command = scene.run(shared=shared)
        command.says("servers ready!")
        scene.note_ports()
        code = command.ended(END_SECONDS)
        books = scene.books()
        problems = [*books.check(), *misplaced_offsets(scene.output), *scene.leftovers()]
        calls = sum(tries.tool_calls for tries in books.tries.values())
        quiet = Quiet(books.keys, coverage_lines(command.text), code, calls, time.monotonic() - started)
    if code != 0:
        problems.append(f"it ended with {code}: {command.text[-2000:]}")
    return quiet, problems


class Trial:
    """Runs one cell in its scene."""

    def __init__(self, cell: Cell, scene: Scene, quiet: Quiet) -> None:
        self.cell = cell
        self.scene = scene
        self.quiet = quiet
        self.outcome = Outcome(cell.name)
        self._point = scene.point(_point_name(cell))

    def run(self) -> Outcome:
        started = time.monotonic()
        try:
            with self.scene.prepared():
                self._disturb_and_resume()
        except InjectionError as error:
            self.outcome.skipped = str(error)
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def _disturb_and_resume(self) -> None:
        match self.cell.victim:
            case Victim.COLLECTOR:
                self._collector()
            case Victim.LAUNCHER:
                self._launcher()
            case _:
                self._whole()
        self._compare()

    # --- layouts -----------------------------------------------------------------------------------------------------

    def _collector(self) -> None:
        """The victim collects from servers that somebody else started, which must not care."""
        servers = self._served()
        self._fill_at_first()
        self._arm()
        collector = self.scene.collect()
        self._hurt(collector.pid)
        self._expect("the collector", collector, self._codes_of_collector())
        self._relieve()
        self._finish(self.scene.collect("--resume"))
        self._expect_code("the servers", self.scene.stop(servers), {0})
        self._check_leftovers()

    def _launcher(self) -> None:
        """The victim started the servers that a collector uses; without it they must go, and the collector too."""
        code = {Fault.TERM: 0, Fault.KILL: -signal.SIGKILL, Fault.STOP: 0, Fault.RESET: 1, Fault.FULL: 1}
        is_early = self.cell.moment is Moment.STARTUP
        self._fill_at_first()
        if is_early:
            self._arm()
            servers = self.scene.serve()
        else:
            servers = self._served()
            self._arm()
        collector = None if is_early else self.scene.collect()
        self._hurt(servers.pid)
        if collector is not None:
            self._expect("the collector", collector, {0} if self.cell.fault is Fault.STOP else {1})
        if self.cell.fault is Fault.STOP:
            servers.process.send_signal(signal.SIGCONT)
            servers.process.send_signal(signal.SIGTERM)
        self._expect("the launcher", servers, {code[self.cell.fault]})
        self._check_leftovers()
        self._relieve()
        again = self._served()
        self._finish(self.scene.collect("--resume"))
        self._expect_code("the new servers", self.scene.stop(again), {0})
        self._check_leftovers()

    def _whole(self) -> None:
        """One command has it all."""
        shared = self.cell.victim is Victim.SHARD
        self._fill_at_first()
        self._arm()
        command = self.scene.run(shared=shared)
        self._hurt(command.pid if self.cell.victim is Victim.RUN else None)
        self._expect("the run", command, self._codes_of_run())
        if self._heals():
            self._expect_whole()
        self._check_leftovers()
        self._relieve()
        self._finish(self.scene.run("--resume", shared=shared))
        self._check_leftovers()

    # --- steps -------------------------------------------------------------------------------------------------------

    def _served(self) -> Command:
        servers = self.scene.serve()
        if not servers.says("servers ready!"):
            self._blame(f"the servers were not ready: {servers.text[-1500:]}")
        self.scene.note_ports()
        return servers

    def _fill_at_first(self) -> None:
        """A disk that is full before anything of the victim runs."""
        owner = self.cell.victim in (Victim.COLLECTOR, Victim.LAUNCHER, Victim.RUN)
        if self.cell.moment is Moment.STARTUP and owner and self.scene.disk is not None:
            self.scene.disk.fill()

    def _arm(self) -> None:
        self._point.arm(_LET_THROUGH.get(self.cell.moment, 0) // (2 if self.cell.victim is Victim.SHARD else 1))

    def _hurt(self, pid: int | None) -> None:
        """Do it when the moment has come, then let everybody go on; the victim is looked up at that moment."""
        if self._is_full_at_first():
            self._point.release()
            return
        command = self.scene.commands[-1]
        wait_until(lambda: self._point.is_reached() or command.process.poll() is not None, REACH_SECONDS)
        if not self._point.is_reached():
            self._blame(f"the moment never came; the command wrote: {command.text[-1500:]}")
        self.scene.note_ports()
        pid = pid or victim_pid(self.cell.victim, self.scene.mark)
        try:
            if pid is None:
                raise ProcessLookupError
            self._inject(pid)
            self._let_servers_go()
        except ProcessLookupError:
            self._blame("the victim was not there")
        self._point.release()
        if self.cell.fault is Fault.STOP and self.cell.victim in (Victim.COLLECTOR, Victim.RUN) and pid is not None:
            time.sleep(STOPPED_SECONDS)
            os.kill(pid, signal.SIGCONT)
            self._see(f"went on after {STOPPED_SECONDS:g} s")

    def _let_servers_go(self) -> None:
        """Where the victim takes the servers with it, nobody goes on before they are gone."""
        cell = self.cell
        deadly = {Victim.LAUNCHER: (Fault.TERM, Fault.KILL, Fault.RESET), Victim.ZYGOTE: (Fault.KILL, Fault.RESET)}
        if cell.fault in deadly.get(cell.victim, ()):
            wait_until(lambda: victim_pid(Victim.RESOURCES, self.scene.mark) is None, STAGE_SECONDS)

    def _is_full_at_first(self) -> bool:
        owner = self.cell.victim in (Victim.COLLECTOR, Victim.LAUNCHER, Victim.RUN)
        return self.cell.fault is Fault.FULL and self.cell.moment is Moment.STARTUP and owner

    def _inject(self, pid: int) -> None:
        self._see(f"{self.scene.measured()} measured when it happened")
        if self.cell.fault is Fault.RESET:
            self._see(f"{reset_sockets(pid)} connections broken")
        elif self.cell.fault is Fault.FULL:
            assert self.scene.disk is not None
            self.scene.disk.fill()
        else:
            os.kill(pid, _SIGNALS[self.cell.fault])

    def _relieve(self) -> None:
        if self.scene.disk is not None:
            self.scene.disk.free()

    def _expect(self, who: str, command: Command, codes: set[int]) -> None:
        started = time.monotonic()
        code = command.ended(END_SECONDS)
        self._see(f"{who} ended with {code} in {time.monotonic() - started:.1f} s")
        if code is None:
            self._blame(f"{who} still ran after {END_SECONDS:g} s: {command.text[-1500:]}")
            self.scene.sweep()
        elif code not in codes:
            self._blame(f"{who} ended with {code} instead of {_either(codes)}: {command.text[-1500:]}")
        if code is not None and code >= 0 and (torn := torn_files(self.scene.output)):
            self._blame(f"{who} ended in order and left half a line in {', '.join(torn)}")
        if "Traceback (most recent call last)" in command.text:
            self._blame(f"{who} showed a traceback: {command.text[-3000:]}")

    def _expect_code(self, who: str, code: int | None, codes: set[int]) -> None:
        if code not in codes:
            self._blame(f"{who} ended with {code} instead of {_either(codes)}")

    def _finish(self, resumed: Command) -> None:
        self.scene.note_ports()
        self._expect("the resumed run", resumed, {self.quiet.code or 0})
        said = coverage_lines(resumed.text)
        if said != self.quiet.coverage:
            self._blame(f"the resumed run says {said} of its coverage; a quiet one {self.quiet.coverage}")

    def _expect_whole(self) -> None:
        """The run made good for it by itself: nothing is missing, and nothing counts as a failed attempt."""
        try:
            books = self.scene.books()
        except ValueError as error:
            self._blame(f"the books can't be read: {error}")
            return
        if books.keys != self.quiet.keys or books.failures:
            self._blame(f"{len(books.records)} measured, {len(books.failures)} failures on file before the resume")

    def _check_leftovers(self) -> None:
        started = time.monotonic()
        left = self.scene.leftovers()
        if left:
            self._blame(f"left after 10 s: {', '.join(left)}")
            self.scene.sweep()
        else:
            self._see(f"nothing left after {time.monotonic() - started:.1f} s")

    def _compare(self) -> None:
        try:
            books = self.scene.books()
        except ValueError as error:
            self._blame(f"the books can't be read: {error}")
            return
        if books.keys != self.quiet.keys:
            missing, more = self.quiet.keys - books.keys, books.keys - self.quiet.keys
            self._blame(f"rollouts missing {sorted(missing)}, too many {sorted(more)}")
        for problem in [*books.check(), *misplaced_offsets(self.scene.output)]:
            self._blame(problem)
        if hidden := self.scene.hidden_files():
            self._blame(f"beside the results: {', '.join(hidden)}")
        tries = books.tries.values()
        self._see(
            f"{sum(each.dispatched for each in tries)} dispatches, {sum(each.retried for each in tries)} retries in "
            f"place, {len(books.failures)} failures on file, {sum(each.tool_calls for each in tries)} tool calls"
        )

    # --- what is expected --------------------------------------------------------------------------------------------

    def _codes_of_collector(self) -> set[int]:
        return {
            Fault.TERM: {75},
            Fault.KILL: {-signal.SIGKILL},
            Fault.STOP: {0},
            Fault.RESET: {0},
            Fault.FULL: {1},
        }[self.cell.fault]

    def _codes_of_run(self) -> set[int]:
        victim, fault = self.cell.victim, self.cell.fault
        if victim is Victim.RUN:
            return self._codes_of_collector()
        if victim is Victim.ZYGOTE:
            return {1} if fault in (Fault.KILL, Fault.RESET) else {0}
        if self._heals():
            return {0}
        return {0, 1} if fault is Fault.STOP else {1}

    def _heals(self) -> bool:
        """Whether a run of its own accord ends as if nothing had been: a dead server is started again, at startup too.

        A hung one is so only after longer than a cell lasts.
        """
        victim, fault = self.cell.victim, self.cell.fault
        if victim in SERVERS:
            return fault is not Fault.STOP
        return victim is Victim.ZYGOTE and fault in (Fault.TERM, Fault.STOP)

    def _see(self, text: str) -> None:
        self.outcome.seen.append(text)

    def _blame(self, text: str) -> None:
        self.outcome.problems.append(text)


def _point_name(cell: Cell) -> str:
    if cell.victim is Victim.COLLECTOR and cell.moment is Moment.STARTUP:
        return "first-write"
    return _POINTS[cell.moment]


def _either(codes: set[int]) -> str:
    return " or ".join(map(str, sorted(codes)))


def disk_of(cell: Cell) -> str | None:
    """Whose files lie on the small disk: the results, or the run's folder with the servers' logs."""
    if cell.fault is not Fault.FULL:
        return None
    return "out" if cell.victim in (Victim.COLLECTOR, Victim.RUN) else "runs"
