"""Running programs that a model wrote, where they can do no harm.

A program sees its own files and stdin, never what it is judged by: compare what it printed outside of it. It runs in
namespaces (`nemo_gym.sandbox.providers.namespaces`), and not at all where those can't be had, unless that is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import GymError
from nemo_gym.sandbox.errors import SandboxUnavailableError
from nemo_gym.sandbox.processes import one_of
from nemo_gym.sandbox.providers.namespaces.availability import Isolation, isolation
from nemo_gym.sandbox.providers.namespaces.box import (
    WORK,
    Box,
    Limits,
    interpreter,
    open_spec,
    package_folders,
    relative_name,
    search_path,
)
from nemo_gym.sandbox.providers.namespaces.cgroups import Cgroup, cgroup
from nemo_gym.sandbox.providers.namespaces.conversation import Conversation, ConversationEndedError
from nemo_gym.sandbox.providers.namespaces.launch import Ended, Jailed
from nemo_gym.sandbox.utils import cpu_cap_env

__all__ = [
    "CodeRunner",
    "CodeRunnerError",
    "Conversation",
    "ConversationEndedError",
    "Limits",
    "RunResult",
    "RunStatus",
    "require_isolation",
]

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_OUT_OF_MEMORY = ("MemoryError", "terminate called after throwing an instance of 'std::bad_alloc'")


class CodeRunnerError(GymError):
    """Programs can't be run here, or one could not be started: that says nothing about the program."""


class RunStatus(StrEnum):
    """How a program ended."""

    OK = "ok"
    FAILED = "failed"
    """With another exit code than 0."""
    CRASHED = "crashed"
    """By a signal."""
    TIMEOUT = "timeout"
    """For its time, by the clock or on the CPU."""
    MEMORY = "memory"
    OUTPUT = "output"
    """It printed or stored too much."""


@dataclass(frozen=True)
class RunResult:
    """What a program did. `exit_code` is None when a signal ended it; `signal` then is its number."""

    status: RunStatus
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    max_rss_mib: float = 0.0

    @property
    def is_ok(self) -> bool:
        return self.status is RunStatus.OK


@dataclass(frozen=True)
class _Place:
    """Where one program runs: the spec of its jail, and its folder."""

    spec: Mapping[str, Any]
    folder: str
    group: Cgroup


class CodeRunner:
    """Runs programs, at most `concurrency` at once over all runners of the event loop with that number.

    `packages`: Python programs may import what is installed for this process. `read_only`: further paths of this
    machine that programs see. `allow_unsandboxed`: where there is no isolation, run them as this user, with the limits
    that hold for single processes. Raises CodeRunnerError, when something is run, with advice where that isn't set.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        concurrency: int | None = None,
        packages: bool = False,
        read_only: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        allow_unsandboxed: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        self.limits = limits or Limits()
        self._concurrency = concurrency or os.cpu_count() or 1
        folders = package_folders() if packages else []
        self._read_only = (*read_only, *folders)
        self._env = {**({"PYTHONPATH": os.pathsep.join(folders)} if folders else {}), **(env or {})}
        self._allow_unsandboxed = allow_unsandboxed
        self._max_output_bytes = max_output_bytes

    async def is_isolated(self) -> bool:
        """Whether programs run in namespaces here. Raises CodeRunnerError where they don't run at all."""
        return await self._isolation() is not None

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = b"",
        files: Mapping[str, str | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> RunResult:
        """Run a program to its end, in a folder with `files` by relative name. Time spent waiting for a turn doesn't
        count. Raises CodeRunnerError, SandboxPathError for a file name that leads out."""
        async with self._place(limits or self.limits, files) as place:
            done = await Jailed(
                argv=argv,
                spec=place.spec,
                cwd=place.folder,
                env=self._environment(place.folder, env),
                stdin=_bytes(stdin),
                max_output_bytes=self._max_output_bytes,
                ends_on_excess=True,
            ).run()
            return result(done, place.group, limits or self.limits)

    async def run_python(
        self,
        source: str,
        *,
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        files: Mapping[str, str | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> RunResult:
        """`run` for a Python program, which becomes `main.py` among the files."""
        whole = {**(files or {}), "main.py": source}
        return await self.run([interpreter(), "main.py", *args], stdin=stdin, files=whole, env=env, limits=limits)

    @contextlib.asynccontextmanager
    async def converse(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        read_only: Sequence[str] = (),
        waits_for_turn: bool = True,
    ) -> AsyncIterator[Conversation]:
        """A program that answers lines with lines until the end of the block, such as an interpreter with state.

        `limits.wall_s` holds for all of it. `waits_for_turn`: it counts as one of the `concurrency` programs; let it
        not for one that mostly waits. Raises CodeRunnerError, SandboxPathError.
        """
        wanted = limits or self.limits
        async with self._place(wanted, files, read_only, waits_for_turn=waits_for_turn) as place:
            env = self._environment(place.folder, env)
            try:
                talk = await Conversation.start(argv, place.spec, place.folder, env, self._max_output_bytes)
            except OSError as error:
                raise CodeRunnerError(f"The program could not be started: {error}.") from error
            try:
                yield talk
            finally:
                await talk.close()

    def outcome(self, ended: Ended, limits: Limits | None = None) -> RunResult:
        """What the end of a conversation says. Raises CodeRunnerError when the program never ran."""
        return result(ended, Cgroup(), limits or self.limits)

    @contextlib.asynccontextmanager
    async def _place(
        self,
        limits: Limits,
        files: Mapping[str, str | bytes] | None,
        read_only: Sequence[str] = (),
        *,
        waits_for_turn: bool = True,
    ) -> AsyncIterator[_Place]:
        contents = {relative_name(name): _bytes(content) for name, content in (files or {}).items()}
        found = await self._isolation()
        async with contextlib.AsyncExitStack() as stack:
            if waits_for_turn:
                await stack.enter_async_context(one_of(self._concurrency, "code"))
            group = await stack.enter_async_context(cgroup(limits)) if found else Cgroup()
            if found is None:
                folder = await asyncio.to_thread(_folder_with, contents)
                stack.push_async_callback(asyncio.to_thread, shutil.rmtree, folder, ignore_errors=True)
                yield _Place(open_spec(limits, folder), str(folder), group)
                return
            box = Box(limits, files=contents, read_only=(*self._read_only, *read_only))
            yield _Place(box.spec(found.way, found.new_uid(), group.folders), WORK, group)

    async def _isolation(self) -> Isolation | None:
        """None: without it, as was allowed."""
        found = await asyncio.to_thread(isolation)
        if not found.refusal:
            return found
        if self._allow_unsandboxed:
            return None
        raise CodeRunnerError(f"Programs are not run without isolation. {found.refusal}") from SandboxUnavailableError(
            found.refusal
        )

    def _environment(self, folder: str, env: Mapping[str, str] | None) -> dict[str, str]:
        temporary = "/tmp" if folder == WORK else folder
        own = {"HOME": folder, "LANG": "C.UTF-8", "PATH": search_path(), "TMPDIR": temporary, **cpu_cap_env(1)}
        return {**own, **self._env, **(env or {})}


def require_isolation(server: str, *, allow_unsandboxed: bool) -> None:
    """For a server that runs programs, before it starts. Raises ConfigError with advice where they can't be isolated,
    unless its `allow_unsandboxed` is set."""
    if not allow_unsandboxed and (refusal := isolation().refusal):
        raise ConfigError(
            f"{server} runs programs that a model wrote, and can't isolate them here. {refusal} Or set "
            "allow_unsandboxed: true for this server, to run them as your own user."
        )


def result(done: Ended, group: Cgroup, limits: Limits) -> RunResult:
    """The status that an end amounts to. Raises CodeRunnerError when the program never ran."""
    if done.error:
        raise CodeRunnerError(f"The program could not be run: {done.error}.")
    stdout, stderr = (stream.decode("utf-8", errors="replace") for stream in (done.stdout, done.stderr))
    return RunResult(
        status=_status(done, stderr, limits, out_of_memory=group.ran_out_of_memory()),
        stdout=stdout,
        stderr=stderr,
        exit_code=done.exit_code,
        signal=done.signal,
        cpu_s=done.cpu_s,
        wall_s=done.wall_s,
        max_rss_mib=done.max_rss_mib,
    )


def _status(done: Ended, stderr: str, limits: Limits, *, out_of_memory: bool) -> RunStatus:
    if done.ended_for in ("output", "disk") or done.signal == signal.SIGXFSZ:
        return RunStatus.OUTPUT
    if done.ended_for or done.signal == signal.SIGXCPU:
        return RunStatus.TIMEOUT
    if done.exit_code == 0:
        return RunStatus.OK
    if out_of_memory or _complains_of_memory(stderr):
        return RunStatus.MEMORY
    if done.signal == signal.SIGKILL and limits.cpu_s is not None and done.cpu_s >= limits.cpu_s:
        return RunStatus.TIMEOUT
    return RunStatus.FAILED if done.signal is None else RunStatus.CRASHED


def _complains_of_memory(stderr: str) -> bool:
    return any(line.startswith(_OUT_OF_MEMORY) for line in stderr.strip().splitlines()[-2:])


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8", errors="surrogatepass") if isinstance(content, str) else content


def _folder_with(files: Mapping[str, bytes]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="nemo-gym-code-"))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
