"""A Python interpreter that keeps its state between pieces of code, in a jail of its own.

It is given code and nothing else: what an answer is compared with stays on this side.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.processes import one_of
from nemo_gym.sandbox.providers.namespaces.box import Limits, interpreter
from nemo_gym.sandbox.providers.namespaces.conversation import Conversation, ConversationEndedError
from nemo_gym.verifiers.code_runner import CodeRunner, RunResult, RunStatus

OUT_OF_TIME = "code timed-out"
SESSION_LIMITS = Limits(wall_s=6 * 3600, cpu_s=3600, memory_mib=4096)
"""For all that is run in one session."""

_DRIVER = Path(__file__).with_name("session_driver.py")
_SPARE_SECONDS = 2.0
_START_SECONDS = 60.0
_MAX_CHARACTERS = 100_000
_RESTARTED = "the interpreter was restarted, and what was defined is gone"
_ENDS = {
    RunStatus.TIMEOUT: OUT_OF_TIME,
    RunStatus.MEMORY: "out of memory",
    RunStatus.OUTPUT: "too much output",
}
_closing: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Namespace:
    """What code finds. `builtins` are the names it may use, None for all of them; `libraries` modules by the name that
    they go by, imported when a piece mentions it.

    `one_namespace`: as in a script, with the last expression's value. Otherwise what a piece defines is local, so that
    functions don't see it, and the last line, where it is an expression, is run once more for its value.
    """

    builtins: Sequence[str] | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    one_namespace: bool = True

    def mentioned(self, code: str) -> dict[str, str]:
        """The libraries that a piece may want."""
        words = set(re.findall(r"\w+", code))
        return {name: module for name, module in self.libraries.items() if name in words}

    def request(self) -> dict[str, Any]:
        return {
            "builtins": None if self.builtins is None else list(self.builtins),
            "one_namespace": self.one_namespace,
        }


@dataclass(frozen=True)
class Ran:
    """What came of a piece of code. With an `error`, its text, there is nothing else."""

    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: str | None = None


class PythonSession:
    """Begins its interpreter with the first piece of code, and again when that has ended. At most `concurrency` pieces
    run at once over all sessions of the event loop with that number."""

    def __init__(
        self,
        runner: CodeRunner,
        namespace: Namespace | None = None,
        *,
        limits: Limits = SESSION_LIMITS,
        concurrency: int | None = None,
        max_characters: int = _MAX_CHARACTERS,
    ) -> None:
        self._runner, self._namespace, self._limits = runner, namespace or Namespace(), limits
        self._concurrency = concurrency or os.cpu_count() or 1
        self._max_characters = max_characters
        self._turn = asyncio.Lock()
        self._talk: Conversation | None = None
        self._holder: asyncio.Task[None] | None = None
        self._let_go = asyncio.Event()
        self._imported: set[str] = set()
        self._is_closing = False

    @property
    def has_begun(self) -> bool:
        """Whether there is an interpreter."""
        return self._talk is not None

    async def run(self, code: str, seconds: float) -> Ran:
        """Run a piece for that many seconds at most, after those before it. Raises CodeRunnerError."""
        async with self._turn, one_of(self._concurrency, "python_session"):
            try:
                talk = self._talk or await self._begun()
                await self._import(talk, code)
                request = {"code": code, "seconds": seconds, "max_characters": self._max_characters}
                return _ran(await talk.ask(_line(request), seconds + _SPARE_SECONDS))
            except ConversationEndedError as error:
                await self._ended()
                if self._is_closing:
                    return Ran(error="the session was closed")
                return _how_it_ended(self._runner.outcome(error.ended, self._limits))
            except (ValueError, RecursionError):
                await self._ended()
                return Ran(error=f"the code wrote where only its interpreter may; {_RESTARTED}")
            except BaseException:
                await self._ended()
                raise

    async def close(self) -> None:
        """End the interpreter and all it started, also in the middle of a piece; `run` would begin another."""
        self._is_closing = True
        try:
            if self._talk is not None:
                await self._talk.close()
            async with self._turn:
                await self._ended()
        finally:
            self._is_closing = False

    def close_soon(self) -> None:
        """`close`, while the caller goes on."""
        if self._talk is not None or self._turn.locked():
            task = asyncio.get_running_loop().create_task(self.close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)

    async def _begun(self) -> Conversation:
        begun: asyncio.Future[Conversation] = asyncio.get_running_loop().create_future()
        self._let_go = asyncio.Event()
        self._holder = asyncio.create_task(self._hold(begun, self._let_go))
        talk = await begun
        self._talk = talk
        await talk.ask(_line(self._namespace.request()), _START_SECONDS)
        return talk

    async def _hold(self, begun: asyncio.Future[Conversation], let_go: asyncio.Event) -> None:
        """The interpreter's whole life, in one task, which ends with the event loop at the latest."""
        argv = [interpreter(), "-P", "-s", str(_DRIVER)]
        conversation = self._runner.converse(argv, limits=self._limits, read_only=[str(_DRIVER)], waits_for_turn=False)
        try:
            async with conversation as talk:
                if not begun.cancelled():
                    begun.set_result(talk)
                    await let_go.wait()
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)

    async def _import(self, talk: Conversation, code: str) -> None:
        """What the code mentions, not in its time."""
        mentioned = self._namespace.mentioned(code)
        new = {name: module for name, module in mentioned.items() if name not in self._imported}
        if new:
            await talk.ask(_line({"imports": new}), _START_SECONDS)
            self._imported |= set(new)

    async def _ended(self) -> None:
        self._talk = None
        self._imported = set()
        holder, self._holder = self._holder, None
        if holder is not None:
            self._let_go.set()
            await holder


def _line(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _ran(line: bytes) -> Ran:
    """Raises ValueError for what the driver never says."""
    answer = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError(answer)
    if answer.get("error") is not None:
        return Ran(error=_plain(answer["error"]))
    value = answer.get("value")
    return Ran(_plain(answer.get("stdout")), _plain(answer.get("stderr")), None if value is None else _plain(value))


def _plain(text: Any) -> str:
    """Without halves of characters, which JSON has and UTF-8 has not."""
    return str(text).encode("utf-8", "replace").decode()


def _how_it_ended(done: RunResult) -> Ran:
    how = _ENDS.get(done.status, f"the interpreter ended ({done.status})")
    return Ran(error=f"{how}; {_RESTARTED}")
