"""Instructions by their ids."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from nemo_gym.verifiers.instructions.language import MissingLibraryError
from nemo_gym.verifiers.verdicts import RowError

Check = Callable[..., bool]
"""Whether a text follows an instruction; takes the text, then the instruction's arguments by name."""


class InstructionError(RowError):
    """An instruction that can't be checked: its id is unknown, or its arguments are none."""


class Instructions(dict[str, Check]):
    """Checks by the ids of their instructions."""

    def named(self, *ids: str) -> Callable[[Check], Check]:
        """Decorates the check of the instructions with these ids."""

        def add(check: Check) -> Check:
            for instruction_id in ids:
                self[instruction_id] = check
            return check

        return add

    def follows(self, instruction_id: str, arguments: Mapping[str, Any] | None, text: str) -> bool:
        """Whether the text follows it. Nulls among the arguments, and such as it doesn't have, don't count.

        Raises InstructionError; MissingLibraryError where a library is missing.
        """
        check = self.get(instruction_id)
        if check is None:
            raise InstructionError(f"The instruction {instruction_id!r} is unknown.")
        names = argument_names(check)
        given = {name: value for name, value in (arguments or {}).items() if name in names and value is not None}
        if missing := [name for name in names if name not in given]:
            raise InstructionError(f"The instruction {instruction_id} needs {', '.join(missing)} in its kwargs.")
        try:
            return bool(check(text, **given))
        except MissingLibraryError:
            raise
        except Exception as error:  # checks take any text: the arguments are at fault
            raise InstructionError(f"{instruction_id} can't be checked with {given}: {error!r}") from error


def argument_names(check: Check) -> list[str]:
    """What a check takes beside the text."""
    return list(inspect.signature(check).parameters)[1:]


def compared(count: float, relation: str, limit: float) -> bool:
    """Whether a count is `less than` or `at least` the limit."""
    if relation == "less than":
        return count < limit
    if relation == "at least":
        return count >= limit
    raise ValueError(f"the relation is {relation!r}, not 'less than' or 'at least'")
