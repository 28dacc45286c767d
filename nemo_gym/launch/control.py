"""The socket on which a run answers its user: what its servers do, and doing something about them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.config.handover import COLLECTORS_FOLDER_NAME, TABLES_FOLDER_NAME
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import SERVER_STUCK_TIMEOUT_S_KEY_NAME
from nemo_gym.config.notices import warn
from nemo_gym.launch.fleet import Fleet
from nemo_gym.launch.held import HeldLimits, HeldWatch
from nemo_gym.launch.linux import parent_of
from nemo_gym.launch.restarts import Reviver
from nemo_gym.launch.rollout_stages import shown_key
from nemo_gym.launch.run_files import CONTROL_SOCKET_NAME
from nemo_gym.launch.silence import SilenceWatch
from nemo_gym.launch.tables import ask_all
from nemo_gym.serve.charges import Charge, write_charge
from nemo_gym.serve.control_socket import RefusedError, listen, serve_one, unknown_operation
from nemo_gym.serve.pulse import Held

RESERVED = ("cancel", "pause", "resume", "tune")
"""Operations that are to come; asked for today, they are refused as not available rather than as unknown."""
_SHARED_ANSWER_SECONDS = 1.0
_TABLE_SECONDS = 0.25
_IN_ASYNC = "An `async def` must not work for so long by itself: a plain `def` runs in a thread"
_IN_C = (
    "Something keeps its interpreter, in threads too, as a regular expression or other code in C can: "
    "`nemo_gym.verifiers` has patterns and worker pools with time limits"
)


class Control:
    """Answers in a thread of its own; operations are the methods named in `operations`, arguments their keywords."""

    def __init__(
        self,
        run_directory: Path,
        fleet: Fleet,
        reviver: Reviver,
        limits: HeldLimits | None = None,
        waits: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        self._waits = waits
        self._limits = limits or HeldLimits()
        self._held = HeldWatch(run_directory, self._limits, self._end_held)
        self._directory = run_directory
        self._fleet = fleet
        self._reviver = reviver
        self._silence = SilenceWatch(run_directory, self._name_of, warn, self._give_up, self._pids)
        self._bound: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._in_flight: tuple[float, int, dict[str, Any]] | None = None
        self.operations: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "about": self._about,
            "servers": self._servers,
            "in_flight": self._tables,
            "restart": self._restart,
            "stop": self._stop,
        }

    def start(self) -> None:
        with contextlib.suppress(OSError):  # a folder that takes no sockets is no reason not to run
            self._bound = listen(self._directory, CONTROL_SOCKET_NAME)
            self._thread = threading.Thread(target=self._run, args=(self._bound,), name="gym-control", daemon=True)
            self._thread.start()
        self._silence.start()
        self._held.start()

    def stop(self) -> None:
        """Safe to call again."""
        self._silence.stop()
        self._held.stop()
        bound, self._bound = self._bound, None
        if bound is not None and self._thread is not None:
            with contextlib.suppress(OSError):
                bound.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            bound.close()

    def answer(self, op: str, arguments: Mapping[str, Any]) -> Any:
        """The result of an operation. Raises RefusedError."""
        if op in RESERVED:
            raise RefusedError("not_available", f"The operation {op!r} is not available in this version.")
        operation = self.operations.get(op)
        if operation is None:
            raise unknown_operation(op, [*self.operations, *RESERVED])
        return operation(arguments)

    def _run(self, bound: socket.socket) -> None:
        while self._bound is not None:
            try:
                serve_one(bound, self.answer)
            except OSError:
                return

    def _about(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"pid": os.getpid(), "operations": list(self.operations), "reserved": list(RESERVED)}

    def _servers(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        processes = [self._process(name) for name in self._fleet.names()]
        return {"as_of": time.time(), "processes": processes, "waits": self._waits()}

    def _process(self, name: str) -> dict[str, Any]:
        process = self._fleet.supervisor.processes.get(name)
        state = self._reviver.states.get(name) or ("running" if name in self._fleet.ready else "starting")
        is_here = process is not None and not process.is_remote
        return {
            "process": name,
            "servers": self._fleet.servers_of(name),
            "pid": process.pid if process is not None and is_here else None,
            "state": state,
            "restarts": self._reviver.generations.get(name, 0),
            "last_end": self._reviver.last_ends.get(name),
            "silent_s": self._silence.silent_for(process.pid) if process is not None and is_here else None,
        }

    def _tables(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Everybody's table; those who ask within the same second get the same answer."""
        limit = int(arguments.get("limit", 100))
        now = time.monotonic()
        kept = self._in_flight
        if kept is not None and now - kept[0] < _SHARED_ANSWER_SECONDS and kept[1] == limit:
            return kept[2]
        folders = {"servers": (TABLES_FOLDER_NAME, "in_flight"), "collectors": (COLLECTORS_FOLDER_NAME, "rollouts")}
        told = {
            key: {str(pid): answer for pid, answer in self._ask(folder, op, limit).items()}
            for key, (folder, op) in folders.items()
        }
        self._in_flight = (now, limit, {"as_of": time.time(), **told})
        return self._in_flight[2]

    def _ask(self, folder: str, op: str, limit: int) -> Mapping[int, Any]:
        return ask_all(self._directory / folder, op, seconds=_TABLE_SECONDS, limit=limit)

    def _restart(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        server = str(arguments.get("server", ""))
        names = self._fleet.processes_of(server)
        if not names:
            known = [name for process in self._fleet.names() for name in (process, *self._fleet.servers_of(process))]
            raise RefusedError("unknown_server", f"This run has no server `{server}`.{did_you_mean(server, known)}")
        if not self._reviver.is_watching:
            raise RefusedError(
                "restarts_off", "This run starts no server again: it is still starting, or has +server_restarts=0."
            )
        processes = [self._fleet.supervisor.processes[name] for name in names]
        if any(process.returncode is not None for process in processes):
            raise RefusedError("restarting", f"`{server}` is being started again already.")
        for process in processes:
            self._reviver.restart(process)
        return {"processes": {process.name: process.pid for process in processes}}

    def _stop(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {"pid": os.getpid()}

    def _give_up(self, pid: int, why: str) -> None:
        """Have a process that won't come back started again, where this run starts any again."""
        name = self._name_of(pid)
        process = None if name is None else self._fleet.supervisor.processes[name]
        if process is not None and process.returncode is None and self._reviver.is_watching:
            self._reviver.restart_hung(process, why)

    def _end_held(self, pid: int, seconds: float, held: Held | None) -> None:
        """Have a process that one piece of work holds up started again, and the rollout it works for fail."""
        name = self._name_of(pid)
        process = None if name is None else self._fleet.supervisor.processes[name]
        if process is None or process.returncode is not None or not self._reviver.is_watching:
            return
        charge = self._charge(held, seconds)
        with contextlib.suppress(OSError):
            if charge is not None:
                write_charge(self._directory, charge)
        rollout = f" for rollout {shown_key(held.rollout)}" if held is not None and held.rollout else ""
        why = f"had its event loop held for {seconds:.0f} s{rollout} {'' if held is None else held.shown}".rstrip()
        cause = _IN_C if held is None else _IN_ASYNC
        advice = f"{cause}; +{SERVER_STUCK_TIMEOUT_S_KEY_NAME}=N allows N seconds."
        self._reviver.restart_held(process, why, advice, is_charged=charge is not None)

    def _charge(self, held: Held | None, seconds: float) -> Charge | None:
        if held is None or not held.rollout:
            return None
        at = f" at {held.at}" if held.at else ""
        message = f"{held.path} held the event loop of its process{at} for {seconds:.0f} s, and was ended with it"
        return Charge(held.rollout, held.server, self._limits.server_types.get(held.server, ""), held.path, message)

    def _pids(self) -> list[int]:
        processes = list(self._fleet.supervisor.processes.values())
        return [each.pid for each in processes if each.returncode is None and not each.is_remote]

    def _name_of(self, pid: int) -> str | None:
        """The server, or shard, that a process is, or is a worker of."""
        processes = self._fleet.supervisor.processes.items()
        pids = {process.pid: name for name, process in processes if not process.is_remote}
        return pids.get(pid) or pids.get(parent_of(pid) or -1)
