"""What can be wrong with an environment's file."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.schema.failure_kinds import VERIFIER_ERROR


class EnvironmentFileError(GymError):
    """An environment's file says something that can't be meant; the message begins with the file and the line."""


def place_of(function: Callable[..., Any]) -> str:
    """`file:line` of a function's definition."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


class EnvironmentRunError(EnvironmentFileError):
    """A function of the file raised while it was called; the message says where, what and in which function."""

    failure_kind = VERIFIER_ERROR

    @classmethod
    def of(cls, error: BaseException, function: Callable[..., Any], file: str) -> EnvironmentRunError:
        name = getattr(function, "__name__", repr(function))
        return cls(f"{line_in(file, error) or place_of(function)}: `{name}` raised {type(error).__name__}: {error}")


def line_in(file: str, error: BaseException) -> str:
    """`file:line` where an error passed through a file for the last time; nothing where it never did."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{frames[-1].lineno}" if frames else ""
