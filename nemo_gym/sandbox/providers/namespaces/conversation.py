"""A jailed program that is talked to: a line in, a line out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym.sandbox.errors import SandboxError
from nemo_gym.sandbox.processes import REAP_SECONDS, Finished
from nemo_gym.sandbox.providers.namespaces.launch import Ended, Report, ended, jail_command


class ConversationEndedError(SandboxError):
    """The program ended, or was ended, before it answered; `ended` says how."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"the program ended before it answered{f': {ended.ended_for}' if ended.ended_for else ''}")
        self.ended = ended


class Conversation:
    """One program, from `start` to `close`. Requests are answered one at a time."""

    def __init__(self, process: asyncio.subprocess.Process, report: Report, max_output_bytes: int) -> None:
        self._process = process
        self._report = report
        self._stderr = bytearray()
        self._max_output_bytes = max_output_bytes
        self._listener = asyncio.create_task(self._listen())
        self._turn = asyncio.Lock()
        self._ended: Ended | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        spec: Mapping[str, Any],
        cwd: str,
        env: Mapping[str, str],
        max_output_bytes: int,
    ) -> Conversation:
        """Start it; answers are lines of at most `max_output_bytes`. Raises OSError."""
        whole = {**spec, "argv": list(argv), "env": dict(env), "cwd": cwd}
        report = Report()
        try:
            with jail_command(whole, report) as (told, command):
                process = await asyncio.create_subprocess_exec(
                    *command,
                    env={},
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(told.fileno(), report.sink),
                    start_new_session=True,
                    limit=max_output_bytes,
                )
        except BaseException:
            report.close()
            raise
        report.handed_over()
        return cls(process, report, max_output_bytes)

    async def ask(self, request: bytes, timeout_s: float) -> bytes:
        """The line it answers a line with. Raises ConversationEndedError, also for no answer in time (`wall`) or a
        longer one than admitted (`output`): the program is then ended."""
        async with self._turn:
            if self._ended is not None:
                raise ConversationEndedError(self._ended)
            try:
                line = await asyncio.wait_for(self._exchange(request), timeout_s)
            except TimeoutError:
                raise ConversationEndedError(await self._end("wall")) from None
            except ValueError:
                raise ConversationEndedError(await self._end("output")) from None
            except BaseException:
                await self._end("abandoned")
                raise
            if not line.endswith(b"\n"):
                raise ConversationEndedError(await self._end(""))
            return line

    async def close(self) -> None:
        """End it and all it started, also while an answer is waited for. Closing twice is fine."""
        if self._ended is None:
            self._kill()
        async with self._turn:
            if self._ended is None:
                await self._end("abandoned")

    async def _exchange(self, request: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.write(request)
            await self._process.stdin.drain()
        return await self._process.stdout.readline()

    async def _end(self, reason: str) -> Ended:
        if reason:
            self._kill()
        try:
            await asyncio.wait_for(asyncio.shield(self._process.wait()), REAP_SECONDS)
        except TimeoutError:
            self._kill()
            await self._process.wait()
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listener
        finished = Finished(
            b"", bytes(self._stderr), self._process.returncode or 0, reason == "wall", reason == "output"
        )
        told = self._report.read()
        self._report.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._ended = ended(finished, told or ({"ended_for": reason} if reason else {}))
        return self._ended

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr += chunk[: self._max_output_bytes - len(self._stderr)]
