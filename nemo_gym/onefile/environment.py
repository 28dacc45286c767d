"""An environment in one file: its tools, its verifier and its tasks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from nemo_gym.onefile.errors import EnvironmentFileError, EnvironmentRunError, place_of
from nemo_gym.onefile.tasks import Task, Tasks, row_of, task_of, tasks_of

if TYPE_CHECKING:
    from nemo_gym.audit.statement import Audit
    from nemo_gym.onefile.playing import Played
    from nemo_gym.onefile.tools import Tool
    from nemo_gym.testing.replies import Replies

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Environment:
    """Tasks, tools a model may call, and a verifier that rewards what it did.

    `tasks` are dicts, a function that makes them, or the name of a JSONL file beside this one. A task's `question` (or
    `prompt`: text or messages) is put to the model, or `prompt`, a template over its fields; `system` goes before it.
    `state` makes an episode's own state, from the task if it takes one. `audit` says what `gym env audit` must know
    beside the reference. Decorated functions stay what they are.
    """

    def __init__(
        self,
        name: str = "",
        *,
        tasks: Tasks = (),
        prompt: str = "",
        system: str = "",
        state: Callable[..., Any] | None = None,
        description: str = "",
        domain: str = "other",
        max_steps: int | None = None,
        audit: Audit | None = None,
    ) -> None:
        caller = sys._getframe(1)
        self.file = caller.f_code.co_filename
        self.place = f"{self.file}:{caller.f_lineno}"
        for key, text in {"name": name, "prompt": prompt, "system": system, "description": description}.items():
            if not isinstance(text, str):
                raise EnvironmentFileError(f"{self.place}: `{key}` is {text!r}: it must be text.")
        if state is not None and not callable(state):
            raise EnvironmentFileError(
                f"{self.place}: `state` is {state!r}, which all episodes would share: give a function that makes a new "
                f"one, as in state=dict or state=lambda: {state!r}."
            )
        self.name = name
        self.variable = "env"
        self.prompt = prompt
        self.system = system
        self.new_state = state
        self.description = description
        self.domain = domain
        self.max_steps = max_steps
        self.tools: dict[str, Tool] = {}
        self._folder = Path(self.file).parent
        self._tasks = tasks
        self._audit = audit
        self._verifier: Callable[..., Any] | None = None
        self._reference: Callable[..., Replies] | None = None

    @overload
    def tool(self, function: FunctionT) -> FunctionT: ...

    @overload
    def tool(self, function: None = None) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None) -> Any:
        """Let models call a function. Its parameters need types; `task` and `state` are filled in, not asked for."""
        if function is None:
            return self.tool
        from nemo_gym.onefile.tools import Tool

        tool = Tool.of(function)
        if tool.name in self.tools:
            raise EnvironmentFileError(f"{place_of(function)}: there is a tool `{tool.name}` already: rename one.")
        self.tools[tool.name] = tool
        return function

    @overload
    def verify(self, function: FunctionT) -> FunctionT: ...

    @overload
    def verify(self, function: None = None) -> Callable[[FunctionT], FunctionT]: ...

    def verify(self, function: Any = None) -> Any:
        """Reward with a function of `response`, `task` and `state`, whichever it takes.

        It returns a number, `(number, reason)`, or a dict of the reward's parts.
        """
        if function is None:
            return self.verify
        from nemo_gym.onefile.tools import parameters_among

        if self._verifier is not None:
            raise EnvironmentFileError(
                f"{place_of(function)}: `{self._verifier.__name__}` verifies already: return a dict of parts from one."
            )
        parameters_among(function, ("response", "task", "state"), "the verifier")
        self._verifier = function
        return function

    @overload
    def reference(self, function: FunctionT) -> FunctionT: ...

    @overload
    def reference(self, function: None = None) -> Callable[[FunctionT], FunctionT]: ...

    def reference(self, function: Any = None) -> Any:
        """Say how a perfect model replies to a `task`: a text, or a list or generator of texts and calls."""
        if function is None:
            return self.reference
        from nemo_gym.onefile.tools import parameters_among

        parameters_among(function, ("task",), "the reference")
        self._reference = function
        return function

    @property
    def verifier(self) -> Callable[..., Any]:
        """Raises EnvironmentFileError without one."""
        if self._verifier is None:
            raise EnvironmentFileError(
                f"{self.place}: the environment has no verifier: decorate a function of (response, task) with "
                "@env.verify."
            )
        return self._verifier

    @cached_property
    def tasks(self) -> list[Task]:
        """Raises EnvironmentFileError where they can't be had."""
        return tasks_of(self._tasks, self._folder, self.place)

    @property
    def tasks_file(self) -> Path | None:
        """The file that the tasks are read from, as it was named; None where they come from elsewhere."""
        return Path(self._tasks) if isinstance(self._tasks, str | Path) else None

    def rows(self) -> list[Task]:
        """The tasks as rows of a data set. Raises EnvironmentFileError for a task that can't be one."""
        return [self.row(task, number) for number, task in enumerate(self.tasks, 1)]

    def row(self, task: Mapping[str, Any], number: int = 1) -> Task:
        tools = [tool.schema() for tool in self.tools.values()]
        return row_of(dict(task), number, system=self.system, prompt=self.prompt, tools=tools, place=self.place)

    @property
    def has_reference(self) -> bool:
        return self._reference is not None

    def reference_for(self, row: Mapping[str, Any]) -> Replies:
        """The right replies to a task or a row of it; None where there are none. Raises EnvironmentRunError."""
        if self._reference is None:
            return None
        arguments = [task_of(row)] if inspect.signature(self._reference).parameters else []
        try:
            replies: Replies = self._reference(*arguments)
        except Exception as error:
            raise EnvironmentRunError.of(error, self._reference, self.file) from error
        return replies

    @property
    def audit(self) -> Audit:
        """What is said for `gym env audit`, with the reference."""
        from nemo_gym.audit.statement import Audit

        stated = self._audit or Audit()
        return replace(stated, reference=self.reference_for) if self.has_reference else stated

    def play(self, task: Mapping[str, Any], replies: Replies) -> Played:
        """What comes of a task when a model gives these replies, without a server: tools are called, all is verified.

        In a coroutine, `await nemo_gym.onefile.playing.played(env, task, replies)`.
        """
        import asyncio

        from nemo_gym.onefile.playing import played

        return asyncio.run(played(self, task, replies))
