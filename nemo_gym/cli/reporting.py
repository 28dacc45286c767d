"""How a command ends: one sentence for a person's mistake, a traceback for ours."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nemo_gym.errors import GymError, UsageError

if TYPE_CHECKING:
    from nemo_gym.cli.command_line import Request

_ENVIRONMENT_FAULTS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG}
)
_STOPPED = frozenset({75, 130})
"""Exit codes of a run that somebody ended: what is said then is no error."""
_BROKEN_PIPE_EXIT_CODE = 141
"""What a shell reports for a program that dies writing to a closed pipe."""


def exit_code_for(error: Exception, request: "Request | None", *, verbose: bool) -> int | None:
    """Tell a person what was wrong and return the exit code; None when the error is a bug of ours."""
    usage = _usage_problems(error, request)
    code = error.exit_code if isinstance(error, GymError) else 2 if usage else 1
    if usage:
        text = f"gym {request.name}: error: {usage}" if request else f"Error: {usage}"
    elif isinstance(error, UsageError) and request:
        text = f"gym {request.name}: error: {error}"
    elif isinstance(error, GymError):
        text = str(error) if error.exit_code in _STOPPED else f"Error: {error}"
    elif isinstance(error, OSError) and error.errno in _ENVIRONMENT_FAULTS and error.filename:
        text = f"Error: {error.filename}: {error.strerror}."
    else:
        return None
    if verbose:
        traceback.print_exception(error)
    print(text, file=sys.stderr)
    return code


def _usage_problems(error: Exception, request: "Request | None") -> str | None:
    """One line for values of a command's own config that are missing or wrong; None for any other error."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(error, pydantic.ValidationError) or not _is_command_config(error.title):
        return None
    flags = {flag.key: flag.names[0] for flag in request.command.flags if flag.key} if request else {}
    issues = error.errors()
    missing = [_spelled(issue, flags) for issue in issues if issue["type"] == "missing"]
    wrong = _wrong_values([issue for issue in issues if issue["type"] != "missing" and issue["loc"]], flags)
    wrong += [f"{_with_flags(_lower_first(issue['msg']), flags)}." for issue in issues if not issue["loc"]]
    sentences = [f"missing {' and '.join(missing)}.", *wrong] if missing else wrong
    if request and request.command.example:
        sentences.append(f"Example: {request.command.example}")
    return " ".join(sentences)


def _is_command_config(title: str) -> bool:
    from nemo_gym.config_types import BaseNeMoGymCLIConfig

    waiting: list[type[Any]] = [BaseNeMoGymCLIConfig]
    while waiting:
        model = waiting.pop()
        if model.__name__ == title:
            return True
        waiting.extend(model.__subclasses__())
    return False


def _wrong_values(issues: Sequence[Any], flags: dict[str, str]) -> list[str]:
    """A sentence per wrong value, however many members of a union refused it; none for what merely holds one.

    What holds others is never shown: it may hold secrets.
    """
    leaves = [issue for issue in issues if not _holds_others(issue["input"])]
    blamed = {_spelled(issue, flags) for issue in leaves}
    sentences: dict[tuple[str, str], str] = {}
    for issue in issues:
        name, holds_others = _spelled(issue, flags), _holds_others(issue["input"])
        if not (holds_others and name in blamed):
            got = "" if holds_others else f" (got {issue['input']!r})"
            sentences.setdefault((name, got), f"{name}: {_lower_first(issue['msg'])}{got}.")
    return list(sentences.values())


def _holds_others(value: object) -> bool:
    return isinstance(value, Container) and not isinstance(value, str | bytes)


def _with_flags(text: str, flags: dict[str, str]) -> str:
    """A message about the whole config in the words of the command line."""
    return re.sub(r"\b[a-z_]+\b", lambda word: flags.get(word[0], word[0]), text)


def _spelled(issue: Any, flags: dict[str, str]) -> str:
    parts = [str(part) for part in issue["loc"]]
    for length in range(len(parts), 0, -1):
        key = ".".join(parts[:length])
        if key in flags:
            return flags[key]
    return f"+{parts[0]}="


def _lower_first(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


@contextmanager
def quiet_broken_pipe() -> Iterator[None]:
    """End without a traceback when whoever reads our output has closed it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_BROKEN_PIPE_EXIT_CODE) from None
