"""Running one program of this machine for a sandbox: bounded in time and output, and never outliving its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from weakref import WeakKeyDictionary

from nemo_gym.sandbox.process_tree import kill_tree

MAX_OUTPUT_BYTES = 32 * 1024 * 1024
REAP_SECONDS = 5.0
_GRACE_SECONDS = 0.2

_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Finished:
    """What a program did; `return_code` is negative for a signal. `timed_out`: it was killed for taking too long;
    `excess`: for writing too much."""

    stdout: bytes
    stderr: bytes
    return_code: int
    timed_out: bool = False
    excess: bool = False


@dataclass(frozen=True)
class Program:
    """A program to run. `marker` (`NAME=value`, in `env`) finds what it started; `daemonizes`: it leaves one running
    that keeps its output; `ends_on_excess`: it is ended when it writes too much; `stdin_fd` is read instead of `stdin`;
    `after_start` is called when it has its own copies of `pass_fds`."""

    argv: Sequence[str]
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    stdin: bytes | None = None
    marker: str | None = None
    daemonizes: bool = False
    max_output_bytes: int = MAX_OUTPUT_BYTES
    ends_on_excess: bool = False
    stdin_fd: int | None = None
    pass_fds: Sequence[int] = ()
    after_start: Callable[[], None] | None = None

    async def run(self, timeout_s: float | None) -> Finished:
        """Run to the end or for `timeout_s` seconds, None meaning any time.

        Then, as when the caller is cancelled, its whole tree is killed. Of each output stream the first
        `max_output_bytes` are kept. Raises OSError when it can't be started.
        """
        async with self._outputs() as (stdout, stderr):
            process = await asyncio.create_subprocess_exec(
                *self.argv,
                cwd=self.cwd,
                env=self.env,
                stdin=self._stdin(),
                stdout=stdout.sink,
                stderr=stderr.sink,
                start_new_session=True,
                pass_fds=tuple(self.pass_fds),
            )
            for handed_over in (stdout.handed_over, stderr.handed_over, self.after_start):
                if handed_over is not None:
                    handed_over()
            try:
                timed_out = not await _ended_within(self._finish_or_excess(process, stdout, stderr), timeout_s)
            finally:
                if process.returncode is None:
                    kill_tree(process.pid, self.marker)
                    await _reaped(process)
            code = process.returncode if process.returncode is not None else -9
            texts = await stdout.text(), await stderr.text()
            excess = self.ends_on_excess and (stdout.excess.is_set() or stderr.excess.is_set())
            return Finished(*texts, code, timed_out, excess)

    def _stdin(self) -> int:
        if self.stdin_fd is not None:
            return self.stdin_fd
        return subprocess.DEVNULL if self.stdin is None else subprocess.PIPE

    async def _finish_or_excess(self, process: asyncio.subprocess.Process, *outputs: _Output) -> None:
        if not self.ends_on_excess:
            return await self._finish(process)
        waits = [asyncio.ensure_future(self._finish(process))]
        waits += [asyncio.ensure_future(_event(output.excess)) for output in outputs]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _finish(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(self.stdin or b"")
                await process.stdin.drain()
            process.stdin.close()
        await process.wait()

    @contextlib.asynccontextmanager
    async def _outputs(self) -> AsyncIterator[tuple[_Output, _Output]]:
        async with contextlib.AsyncExitStack() as stack:
            if self.daemonizes:
                yield stack.enter_context(_File()), stack.enter_context(_File())
            else:
                pipes = [_Pipe(self.max_output_bytes), _Pipe(self.max_output_bytes)]
                for pipe in pipes:
                    stack.callback(pipe.handed_over)
                    await pipe.open()
                yield pipes[0], pipes[1]


class _Output(Protocol):
    excess: asyncio.Event

    @property
    def sink(self) -> int: ...

    def handed_over(self) -> None: ...

    async def text(self) -> bytes: ...


class _Pipe(asyncio.Protocol):
    """A pipe that is read to its end, even after the caller has lost interest: whoever writes must not block."""

    def __init__(self, limit: int) -> None:
        self._limit, self._kept, self._cut = limit, bytearray(), 0
        self._ended, self.excess = asyncio.Event(), asyncio.Event()
        self._read_end, self.sink = os.pipe()
        self._is_ours = True

    async def open(self) -> None:
        source = os.fdopen(self._read_end, "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, source)

    def handed_over(self) -> None:
        if self._is_ours:
            self._is_ours = False
            os.close(self.sink)

    def data_received(self, data: bytes) -> None:
        kept = data[: self._limit - len(self._kept)]
        self._kept += kept
        self._cut += len(data) - len(kept)
        if self._cut:
            self.excess.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()

    async def text(self) -> bytes:
        """What was written; a process left in the background may hold the pipe open, so the end is not waited for."""
        await _ended_within(self._ended.wait(), _GRACE_SECONDS)
        note = f"\n[{self._cut} more bytes were cut]".encode() if self._cut else b""
        self._limit = len(self._kept)
        return bytes(self._kept) + note


class _File:
    """A file in a pipe's place, for output that a daemon goes on writing to."""

    def __enter__(self) -> _File:
        self.excess = asyncio.Event()
        self._file: IO[bytes] = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def sink(self) -> int:
        return self._file.fileno()

    def handed_over(self) -> None:
        return None

    async def text(self) -> bytes:
        self._file.seek(0)
        return self._file.read(MAX_OUTPUT_BYTES)


@contextlib.asynccontextmanager
async def one_of(concurrency: int, kind: str) -> AsyncIterator[None]:
    """At most `concurrency` at once of a kind, over all providers of this event loop with the same number."""
    limits = _limits.setdefault(asyncio.get_running_loop(), {})
    async with limits.setdefault((kind, concurrency), asyncio.Semaphore(concurrency)):
        yield


async def _event(event: asyncio.Event) -> None:
    await event.wait()


async def _ended_within(awaitable: object, timeout_s: float | None) -> bool:
    try:
        await asyncio.wait_for(awaitable, timeout_s)  # type: ignore[arg-type]
    except TimeoutError:
        return False
    return True


async def _reaped(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(process.wait()), REAP_SECONDS)
