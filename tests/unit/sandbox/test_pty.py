"""Commands in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxHandle, SandboxPtySpec, SandboxSpec
from tests.unit.sandbox.fakes import FakeProvider


class ShellSession:
    """A real shell behind pipes; what is typed is echoed, as a terminal does."""

    session_id = "s1"

    def __init__(self, process: asyncio.subprocess.Process, first: bytes = b"") -> None:
        self.process, self.pending, self.is_closed = process, first, False

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.pending += data
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def read(self) -> bytes:
        assert self.process.stdout is not None
        pending, self.pending = self.pending, b""
        return pending or await self.process.stdout.read(1024)

    async def close(self) -> None:
        self.is_closed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        await self.process.wait()


class TerminalProvider(FakeProvider):
    session: ShellSession

    async def create_pty(self, handle: SandboxHandle, spec: SandboxPtySpec) -> ShellSession:
        self._note("create_pty", spec)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "sh", stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, start_new_session=True
        )
        self.session = ShellSession(process)
        return self.session


async def opened(provider: FakeProvider) -> AsyncSandbox:
    return await AsyncSandbox(provider, SandboxSpec(workdir="/w")).start()


async def test_a_command_has_a_terminal_for_itself() -> None:
    provider = TerminalProvider()
    sandbox = await opened(provider)
    result = await sandbox.pty.exec("echo a; echo b >&2; (exit 3)")
    assert (result.stdout, result.return_code, result.error_type) == ("a\nb", 3, None)
    assert provider.session.is_closed
    assert provider.calls[-1] == ("create_pty", SandboxPtySpec(cwd="/w"))


async def test_a_session_keeps_its_state() -> None:
    sandbox = await opened(TerminalProvider())
    session: Any = await sandbox.pty.create()
    await sandbox.pty.exec("X=5", session)
    assert (await sandbox.pty.exec("echo $X", session)).stdout == "5"
    assert (await sandbox.pty.exec("echo $Y; pwd", session, cwd="/", env={"Y": "y z"})).stdout == "y z\n/"
    assert not session.is_closed
    await session.close()


async def test_a_command_that_takes_too_long_is_reported() -> None:
    sandbox = await opened(TerminalProvider())
    result = await sandbox.pty.exec("echo begun; sleep 300", timeout_s=0.5)
    assert (result.stdout, result.error_type) == ("begun", "timeout")


async def test_a_terminal_that_ends_is_reported() -> None:
    sandbox = await opened(TerminalProvider())
    assert (await sandbox.pty.exec("exit 0")).error_type == "pty"


async def test_a_detached_command_is_looked_after() -> None:
    sandbox = await opened(TerminalProvider())
    result = await sandbox.pty.exec("echo out; exit 4", detach=True, poll_interval_s=0.01)
    assert (result.stdout, result.return_code) == ("out", 4)


async def test_attaching_needs_a_provider_that_can() -> None:
    sandbox = await opened(TerminalProvider())
    with pytest.raises(NotImplementedError, match="attach"):
        await sandbox.pty.attach("s1")
