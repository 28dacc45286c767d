"""From the tasks of a file to rows of data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.prompts import PromptConfig, fill_prompt
from nemo_gym.config.task_data import RESERVED_ROW_KEYS
from nemo_gym.onefile.errors import EnvironmentFileError, line_in

Task = dict[str, Any]
Tasks = Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]] | str | Path

PARAMETERS = "responses_create_params"
_RESERVED = frozenset({"agent_ref", "response", "reward", "task_data", "verifier_metadata"})
_NOT_THE_TASKS = RESERVED_ROW_KEYS | {"response", "skills_ref"}
_PROMPT_FIELDS = ("prompt", "question")
_ROLES = ("user", "system", "developer", "assistant")
_BRACES = re.compile(r"\{[^{}]*[^\w{}]")
MOST_TASKS = 200_000


def tasks_of(tasks: Tasks, folder: Path, place: str) -> list[Task]:
    """The tasks themselves: given, made by a function, or the lines of a file beside the environment's.

    Raises EnvironmentFileError for what holds none.
    """
    if isinstance(tasks, str | Path):
        return _lines(folder / tasks, place)
    found: list[Task] = []
    for number, task in enumerate(_made(tasks, place), 1):
        if number > MOST_TASKS:
            raise EnvironmentFileError(
                f"{place}: there are more than {MOST_TASKS} tasks: name a JSONL file, or let the function end."
            )
        if not isinstance(task, Mapping):
            raise EnvironmentFileError(f"{place}: task {number} is {task!r}: a task is a dict of its fields.")
        found.append(dict(task))
    return found


def _made(tasks: Any, place: str) -> Iterator[Any]:
    file = place.rpartition(":")[0]
    try:
        yield from tasks() if callable(tasks) else tasks
    except Exception as error:
        where = line_in(file, error) or place
        raise EnvironmentFileError(f"{where}: the tasks can't be made: {type(error).__name__}: {error}.") from error


def row_of(task: Task, number: int, *, system: str, prompt: str, tools: list[dict[str, Any]], place: str) -> Task:
    """The row of a task: its fields, and the request that puts it to a model.

    Raises EnvironmentFileError for a task without a prompt, and for a field that rows need for something else.
    """
    if reserved := _RESERVED & task.keys():
        raise EnvironmentFileError(f"{place}: task {number} can't have a field `{min(reserved)}`: rename it.")
    parameters = dict(task.get(PARAMETERS) or {})
    if "input" not in parameters:
        parameters["input"] = _messages(task, number, system, prompt, place)
    if tools:
        parameters.setdefault("tools", tools)
    row = {PARAMETERS: parameters, **{key: value for key, value in task.items() if key != PARAMETERS}}
    try:
        json.dumps(row, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise EnvironmentFileError(f"{place}: task {number} can't be written as JSON: {error}.") from error
    return row


def task_of(row: Mapping[str, Any]) -> Task:
    """The task of a row, as it was written."""
    return {key: value for key, value in row.items() if key not in _NOT_THE_TASKS and not key.startswith("_ng_")}


def _messages(task: Task, number: int, system: str, prompt: str, place: str) -> list[dict[str, Any]]:
    fields = [name for name in _PROMPT_FIELDS if name in task]
    given = task[fields[0]] if fields else None
    if not prompt and fields:
        _check_given(given, fields, number, place)
    if not prompt and isinstance(given, list):
        has_system = any(message.get("role") == "system" for message in given)
        return given if has_system or not system else [{"role": "system", "content": system}, *given]
    if not prompt and not fields:
        raise EnvironmentFileError(
            f"{place}: task {number} has no `question` or `prompt` for the model: add one, or give the environment a "
            'template, as in prompt="What is {a} + {b}?".'
        )
    try:
        values = task if prompt else {**task, "given": given}
        return fill_prompt(PromptConfig(user=prompt or "{given}", system=system or None), values)
    except (KeyError, ConfigError) as error:
        hint = " Write {{ and }} for braces that are meant as such." if _BRACES.search(prompt) else ""
        raise EnvironmentFileError(f"{place}: task {number}: {error.args[0]}{hint}") from error


def _check_given(given: Any, fields: list[str], number: int, place: str) -> None:
    name = fields[0]
    problem = ""
    if len(fields) > 1:
        problem = f"has both `{'` and `'.join(fields)}`: one is put to the model, so rename the other"
    elif not isinstance(given, str | list):
        problem = f"has the `{name}` {given!r}: it must be text or a list of messages"
    elif not given or (isinstance(given, str) and not given.strip()):
        problem = f"has an empty `{name}`: say what the model is asked"
    elif isinstance(given, list):
        problem = next(filter(None, (_wrong_message(message, name) for message in given)), "")
    if problem:
        raise EnvironmentFileError(f"{place}: task {number} {problem}.")


def _wrong_message(message: Any, name: str) -> str:
    if not isinstance(message, Mapping):
        return f"has {message!r} in its `{name}`: a message is a dict of `role` and `content`"
    if message.get("type", "message") == "message" and message.get("role") not in _ROLES:
        return f"has a message of the role {message.get('role')!r}: it is one of {', '.join(_ROLES)}"
    return ""


def _lines(path: Path, place: str) -> list[Task]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EnvironmentFileError(f"{place}: the tasks in {path} can't be read: {error.strerror}.") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            task = json.loads(line) if line.strip() else None
        except ValueError as error:
            raise EnvironmentFileError(f"{path}:{number}: not valid JSON ({error}).") from error
        if task is not None and not isinstance(task, dict):
            raise EnvironmentFileError(f"{path}:{number}: a task must be an object, not {task!r}.")
        found += [task] if task is not None else []
    return found
