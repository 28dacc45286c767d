"""The root of every error a person is meant to read.

A room derives its own tree from `GymError`. The message is one sentence that names the file, key or row, what was
wrong, and the next step; the command line prints it without a traceback and exits with `exit_code`.
"""

from typing import ClassVar


class GymError(Exception):
    """Something a user, not a programmer, has to mend."""

    exit_code: ClassVar[int] = 1


class UsageError(GymError):
    """The command line itself was wrong."""

    exit_code: ClassVar[int] = 2
