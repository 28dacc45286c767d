"""Whether the right answers of an environment's file pay more than none, as a program that may be ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from nemo_gym.audit.progress import begin, place_where, tell
from nemo_gym.errors import GymError
from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.errors import EnvironmentFileError, EnvironmentRunError
from nemo_gym.onefile.loading import load_environment
from nemo_gym.onefile.playing import Played
from nemo_gym.testing.replies import Replies


def unpaid(environment: Environment, beginning: Callable[[str], None] = lambda what: None) -> str:
    """What is wrong with the rewards of right answers and of none; nothing where all is well.

    Raises EnvironmentFileError for what its functions raise.
    """
    for number, task in enumerate(environment.tasks, 1):
        beginning(f"task {number}, saying nothing")
        nothing = _played(environment, number, "").reward
        if not environment.has_reference:
            continue
        beginning(f"task {number}, the reference")
        right = _played(environment, number, environment.reference_for(task))
        if right.reward <= nothing:
            refused = next((output for output in right.outputs if output.startswith('{"error": ')), "")
            why = f" A call of the reference was answered {refused}." if refused else ""
            why = why or (f" The verifier says: {right.reason}." if right.reason else "")
            paid = f"the reference gets {right.reward:g}, saying nothing {nothing:g}"
            return f"Task {number} of {environment.name}: {paid}.{why}"
    return ""


def _played(environment: Environment, number: int, replies: Replies) -> Played:
    try:
        return environment.play(environment.tasks[number - 1], replies)
    except EnvironmentFileError as error:
        raise EnvironmentFileError(f"{error} (Task {number}.)") from error
    except Exception as error:
        told = EnvironmentRunError.of(error, environment.verifier, environment.file)
        raise EnvironmentFileError(f"{told} (Task {number}.)") from error


def main() -> None:
    """`FILE SECONDS`: tell what is being tried and what was found; where it was, if that takes longer."""
    begin()
    path, seconds = Path(sys.argv[1]), float(sys.argv[2])
    timers = [threading.Timer(0, lambda: None)]

    def beginning(what: str) -> None:
        timers[-1].cancel()
        tell(doing=what)
        timers.append(threading.Timer(seconds, lambda: tell(at=place_where(path.__eq__))))
        timers[-1].daemon = True
        timers[-1].start()

    try:
        environment = load_environment(path)
        tell(found=unpaid(environment, beginning))
    except GymError as error:
        tell(found=str(error))
    finally:
        timers[-1].cancel()


if __name__ == "__main__":
    main()
