"""Waiting until every server answers, by events: a byte on a pipe, or the reply to a request in the backlog."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nemo_gym.launch.errors import ServersLateError
from nemo_gym.launch.supervisor import Supervisor

PROGRESS_SECONDS = 10.0
PROBE_AFTER_SECONDS = 3.0
_PROBE_AGAIN_SECONDS = 0.25
_CLOSED = -1
_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: gym-readiness\r\nConnection: close\r\n\r\n"


@dataclass
class Awaited:
    """A server that isn't ready yet: its pipe, and its address for the case that no byte comes.

    `probe_at` is the monotonic time from which it is asked over HTTP; a server made by somebody else's code may never
    write a byte. `servers` are the instances it holds, where that isn't one of its own name.
    """

    name: str
    pipe: int
    address: tuple[str, int]
    probe_at: float
    probe: socket.socket | None = field(default=None, repr=False)
    servers: tuple[str, ...] = ()


@dataclass
class Readiness:
    """Waits for servers in the calling thread. `on_ready` is told each name as it becomes ready.

    `again` starts anew what has ended meanwhile and can be: whatever it gives is waited for in place of that.
    """

    supervisor: Supervisor
    on_ready: Callable[[str], None]
    report: Callable[[str], None]
    awaited: dict[str, Awaited] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    again: Callable[[], Iterable[Awaited]] = tuple

    def expect(self, server: Awaited) -> None:
        self.awaited[server.name] = server
        self.expected.update(server.servers or (server.name,))

    def wait(self, timeout: float | None) -> None:
        """Return when all are ready. Raises ServerFailedError when one ends, ServersLateError when time is up."""
        deadline = None if timeout is None else time.monotonic() + timeout
        report_at = time.monotonic() + PROGRESS_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.supervisor.wakeup, selectors.EVENT_READ)
            for server in self.awaited.values():
                selector.register(server.pipe, selectors.EVENT_READ, server)
            while self.awaited:
                self.supervisor.check()
                for server in self.again():
                    self._replace(selector, server)
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    raise self._late(timeout or 0.0)
                if now >= report_at:
                    self.report(self.progress())
                    report_at = now + PROGRESS_SECONDS
                self._start_probes(selector, now)
                for key, _ in selector.select(self._patience(deadline, report_at)):
                    self._take_event(selector, key)

    def progress(self) -> str:
        late = ", ".join(f"{name} ({self._state(name)})" for name in self.awaited)
        missing = {name for server in self.awaited.values() for name in server.servers or (server.name,)}
        total = len(self.expected)
        return f"{total - len(missing)} / {total} servers ready; waiting for {late}"

    def close(self) -> None:
        """Give up what is still open."""
        for server in self.awaited.values():
            self._release(server)
        self.awaited.clear()

    def _replace(self, selector: selectors.BaseSelector, server: Awaited) -> None:
        before = self.awaited.get(server.name)
        if before is not None:
            self._unregister(selector, before)
            self._release(before)
        self.expect(server)
        selector.register(server.pipe, selectors.EVENT_READ, server)

    def _take_event(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        server: Awaited | None = key.data
        if server is None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.supervisor.wakeup, 4096)
        elif self.awaited.get(server.name) is not server:
            return  # the other of its two events came first
        elif key.fileobj is server.probe:
            self._read_probe(selector, server, server.probe)
        else:
            self._read_pipe(selector, server)

    def _read_pipe(self, selector: selectors.BaseSelector, server: Awaited) -> None:
        if os.read(server.pipe, 1):
            self._finish(selector, server)
            return
        selector.unregister(server.pipe)  # closed without a word: it ended, or doesn't know the pipe and is asked
        os.close(server.pipe)
        server.pipe = _CLOSED

    def _start_probes(self, selector: selectors.BaseSelector, now: float) -> None:
        for server in list(self.awaited.values()):
            if server.probe is None and now >= server.probe_at:
                server.probe = self._connect(server)
                if server.probe is None:
                    server.probe_at = now + _PROBE_AGAIN_SECONDS
                else:
                    selector.register(server.probe, selectors.EVENT_READ, server)

    def _connect(self, server: Awaited) -> socket.socket | None:
        host, port = server.address
        try:
            probe = socket.create_connection((_reachable(host), port), timeout=1.0)
            probe.sendall(_REQUEST)
            probe.setblocking(False)
        except OSError:
            return None
        return probe

    def _read_probe(self, selector: selectors.BaseSelector, server: Awaited, probe: socket.socket) -> None:
        try:
            answered = probe.recv(16).startswith(b"HTTP/")
        except OSError:
            answered = False
        if answered:
            self._finish(selector, server)
            return
        selector.unregister(probe)
        probe.close()
        server.probe = None
        server.probe_at = time.monotonic() + _PROBE_AGAIN_SECONDS

    def _finish(self, selector: selectors.BaseSelector, server: Awaited) -> None:
        del self.awaited[server.name]
        self._unregister(selector, server)
        self._release(server)
        self.on_ready(server.name)

    def _unregister(self, selector: selectors.BaseSelector, server: Awaited) -> None:
        for fileobj in (server.pipe, server.probe):
            if fileobj not in (None, _CLOSED):
                selector.unregister(fileobj)

    def _release(self, server: Awaited) -> None:
        if server.pipe != _CLOSED:
            os.close(server.pipe)
            server.pipe = _CLOSED
        if server.probe is not None:
            server.probe.close()
            server.probe = None

    def _patience(self, deadline: float | None, report_at: float) -> float:
        waits = [server.probe_at for server in self.awaited.values() if server.probe is None]
        return max(0.0, min([report_at, *([] if deadline is None else [deadline]), *waits]) - time.monotonic())

    def _state(self, name: str) -> str:
        process = self.supervisor.processes.get(name)
        if process is None:
            return "not started"
        return f"starting, pid {process.pid}" if process.returncode is None else process.describe_end()

    def _late(self, timeout: float) -> ServersLateError:
        return ServersLateError(
            f"After {timeout:g} s, {self.progress()}. Look at their lines above, or allow more time with "
            f"+server_spinup_timeout_seconds=<seconds>."
        )


def _reachable(host: str) -> str:
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
