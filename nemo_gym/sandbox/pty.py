"""Terminals in a sandbox, where its provider has them."""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nemo_gym.sandbox.providers.base import (
    CANNOT_RUN,
    SandboxExecResult,
    SandboxPtySession,
    SandboxPtySpec,
    SupportsSandboxPty,
    SupportsSandboxPtyAttach,
)

if TYPE_CHECKING:
    from nemo_gym.sandbox.api import AsyncSandbox


class SandboxPty:
    """The terminals of one sandbox."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create(
        self,
        command: str | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        rows: int = 24,
        cols: int = 80,
        user: str | int | None = None,
        pty: bool = True,
    ) -> SandboxPtySession:
        """Open a terminal. Raises NotImplementedError when the provider has none, RuntimeError before start."""
        handle = self._sandbox._require_handle()
        provider = self._sandbox.provider
        if not isinstance(provider, SupportsSandboxPty):
            raise NotImplementedError(f"the sandbox provider {provider.name!r} has no terminals")
        spec = SandboxPtySpec(command, cwd or self._sandbox.workdir, dict(env or {}), rows, cols, user, pty)
        return await provider.create_pty(handle, spec)

    async def attach(self, session_id: str, *, takeover: bool = True, since: int | None = None) -> SandboxPtySession:
        """An open terminal again. Raises NotImplementedError when the provider can't."""
        handle = self._sandbox._require_handle()
        provider = self._sandbox.provider
        if not isinstance(provider, SupportsSandboxPtyAttach):
            raise NotImplementedError(f"the sandbox provider {provider.name!r} can't attach to terminals")
        return await provider.attach_pty(handle, session_id, takeover=takeover, since=since)

    async def exec(
        self,
        command: str,
        session: SandboxPtySession | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 180,
        user: str | int | None = None,
        rows: int = 24,
        cols: int = 80,
        pty: bool = True,
        detach: bool = False,
        poll_interval_s: float = 15,
    ) -> SandboxExecResult:
        """Run a command in a terminal: `session`, or one for it alone.

        Both output streams are in `stdout`. After `timeout_s` the error type is `timeout` and the command goes on.
        `detach` runs it in the background and looks every `poll_interval_s` seconds whether it has ended.
        """
        own = session is None
        terminal = session or await self.create(cwd=cwd, env=env, rows=rows, cols=cols, user=user, pty=pty)
        typed = _with_place(command, cwd, env) if not own else command
        try:
            if detach:
                return await _detached(terminal, typed, timeout_s, poll_interval_s)
            return await _typed(terminal, typed, timeout_s)
        finally:
            if own:
                await terminal.close()


def _with_place(command: str, cwd: str | None, env: Mapping[str, str] | None) -> str:
    lines = [f"cd {shlex.quote(cwd)} || exit 125"] if cwd else []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    return "( " + "\n".join([*lines, command]) + "\n)" if lines else command


async def _typed(session: SandboxPtySession, command: str, timeout_s: float | None) -> SandboxExecResult:
    mark = secrets.token_hex(8)
    # The marks are put together by printf, so that the terminal's echo of this text doesn't contain them.
    text = f"printf '\\n%s-%s\\n' BEGIN {mark}\n{command}\nprintf '\\n%s-%s:%d\\n' END {mark} $?\n"
    shown = bytearray()

    async def until_end() -> SandboxExecResult:
        await session.write(text.encode())
        ended = re.compile(rb"END-" + mark.encode() + rb":(\d+)\r?\n")
        while (end := ended.search(shown)) is None:
            data = await session.read()
            if not data:
                return SandboxExecResult(_after(shown, mark), "The terminal was closed.", CANNOT_RUN, "pty")
            shown.extend(data)
        return SandboxExecResult(_after(shown[: end.start()], mark), "", int(end[1]))

    try:
        return await asyncio.wait_for(until_end(), timeout_s)
    except TimeoutError:
        return SandboxExecResult(_after(shown, mark), f"No end after {timeout_s:g} s.", CANNOT_RUN, "timeout")


def _after(shown: bytes | bytearray, mark: str) -> str:
    begin = f"BEGIN-{mark}".encode()
    output = bytes(shown).rpartition(begin)[2] if begin in shown else bytes(shown)
    return output.decode("utf-8", errors="replace").replace("\r\n", "\n").strip("\n")


async def _detached(
    session: SandboxPtySession, command: str, timeout_s: float | None, poll_interval_s: float
) -> SandboxExecResult:
    files = f"/tmp/nemo-gym-{secrets.token_hex(8)}"
    script = f"({command}\n) > {files}.out 2>&1; echo $? > {files}.part; mv {files}.part {files}.code"
    await _typed(session, f"nohup sh -c {shlex.quote(script)} > /dev/null 2>&1 &", timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            while (code := await _typed(session, f"cat {files}.code 2>/dev/null", timeout_s)).return_code != 0:
                if code.error_type is not None:
                    return code
                await asyncio.sleep(poll_interval_s)
    except TimeoutError:
        return SandboxExecResult("", f"No end after {timeout_s:g} s.", CANNOT_RUN, "timeout")
    output = await _typed(session, f"cat {files}.out; rm -f {files}.out {files}.code", None)
    return SandboxExecResult(output.stdout, "", int((code.stdout or "0").split()[-1]))
