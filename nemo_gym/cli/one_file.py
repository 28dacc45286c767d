"""Environments given by the path of their file: `gym eval run my_env.py`."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.flags import Flag, Words
from nemo_gym.cli.overrides import config_paths_override
from nemo_gym.cli.watched import watched
from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from nemo_gym.onefile.component import Component

SUFFIX = ".py"
_COMPONENT = "environment_component"


@dataclass(frozen=True, kw_only=True)
class EnvironmentFileWord(Words):
    """The path of an environment's file, which stands for the config and the folder that serve it."""

    def refusal(self, word: str) -> str:
        if is_file(word):
            return ""
        return (
            f"{word!r} is no environment's file, which ends in {SUFFIX}: a component is named by --environment, "
            "--benchmark or --resources-server."
        )

    def translate_to_hydra(self, args: argparse.Namespace) -> list[str]:
        component = component_of(self, args)
        return [] if component is None else [config_paths_override([str(component.config)])]


@dataclass(frozen=True, kw_only=True)
class FromFlag(Flag):
    """The environment's file that something is made from."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=self.metavar)


def is_file(word: object) -> bool:
    """Whether a word means an environment's file."""
    return isinstance(word, str) and word.endswith(SUFFIX)


def component_of(words: Words | None, args: argparse.Namespace) -> "Component | None":
    """What serves the file on the line; None without one. It is read once a line.

    Raises EnvironmentFileError for a file that is wrong.
    """
    value = getattr(args, words.dest, None) if isinstance(words, EnvironmentFileWord) else None
    if value is None:
        return None
    if not hasattr(args, _COMPONENT):
        setattr(args, _COMPONENT, _component_at(str(value)))
    component: Component = getattr(args, _COMPONENT)
    return component


def roots_of(words: Words | None, args: argparse.Namespace) -> list[str]:
    """Where that is found."""
    component = component_of(words, args)
    return [] if component is None else [str(component.root)]


def _component_at(path: str) -> "Component":
    from nemo_gym.onefile.component import cached_component

    return cached_component(Path(path))


def init(path: str) -> None:
    """Make the folder of an environment's file, or its example rows anew. Raises GymError where that can't be done."""
    from nemo_gym.cli.scaffold import tell
    from nemo_gym.onefile.example_rows import EXAMPLE_ROWS
    from nemo_gym.onefile.growing import scaffold_from_file

    made = scaffold_from_file(Path(path))
    if [file.name for file in made.created] == [EXAMPLE_ROWS.name]:
        print(f"✓ Wrote {made.created[0]}")
    else:
        tell(made)


def test(path: str) -> None:
    """Check an environment's file, and run the tests in it and in `test_<file>` beside it.

    Raises GymError for a file that is wrong, and for functions in it that don't end; ends with pytest's code when a
    test fails.
    """
    from nemo_gym.onefile.loading import load_environment

    file = Path(os.path.abspath(path))  # noqa: PTH100 - symlinks kept
    environment = load_environment(file)
    rows = environment.rows()
    print(f"{environment.name}: {_counted(rows, 'task')}, {_counted(list(environment.tools), 'tool')}.", flush=True)
    if not rows:
        print(f"{NO_TASKS.format(place=environment.place)}", file=sys.stderr)
    found = _checked(file)
    code = _own_tests(file)
    if code and code != _NO_TESTS:
        raise SystemExit(code)
    if code == _NO_TESTS:
        print(f"There are no tests: write functions test_… in {file.name}, or in test_{file.name} beside it.")
    if found:
        raise GymError(found)


NO_TASKS = "{place}: there are no tasks: give `Environment(tasks=[…])` some, or name rows by --input when it is run."
CHECK_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_SAY_EVERY_SECONDS = 10.0
_NO_TESTS = 5
_PYTEST = """\
import sys, pytest
sys.path.append(sys.argv[1])
sys.exit(pytest.main(sys.argv[2:]))
"""
"""The folder of the file comes last on the path: a `json.py` there isn't what anybody means by `import json`."""


def _checked(file: Path) -> str:
    """What is wrong with the rewards of right answers and of none. Raises GymError where that can't be said."""
    doing, found = "being read", list[str]()

    def heard(said: dict[str, Any]) -> None:
        nonlocal doing
        doing = said.get("doing", doing)
        if "at" in said:
            raise stuck(said["at"])
        if "found" in said:
            found.append(said["found"])

    started = said = time.monotonic()

    def meanwhile() -> None:
        nonlocal said
        if (now := time.monotonic()) - said >= _SAY_EVERY_SECONDS:
            said = now
            print(f"{file.name}, {doing}: {now - started:.0f} s …", file=sys.stderr)

    def stuck(at: str) -> GymError:
        where = f": it is at {at}" if at else ""
        return GymError(f"{file.name}, {doing}: no verdict within {CHECK_SECONDS:g} s{where}. End loops and waits.")

    command = [sys.executable, "-P", "-m", "nemo_gym.onefile.checking", str(file), str(CHECK_SECONDS)]
    ended = watched(command, heard, patience_s=CHECK_SECONDS + _GRACE_SECONDS, meanwhile=meanwhile)
    if found:
        return found[-1]
    if ended.is_stuck:
        raise stuck("")
    raise GymError(f"{file.name}, {doing}: the program {ended}: functions must return or raise.")


def _own_tests(file: Path) -> int:
    beside = file.with_name(f"test_{file.name}")
    places = [str(file), *([str(beside)] if beside.is_file() else [])]
    # Modules are named from the folder above, so that one called like a module of Python's isn't taken for that.
    options = ["-q", "--import-mode=importlib", f"--rootdir={file.parent.parent}", "-p", "no:cacheprovider"]
    settings = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "-o", "addopts="]
    command = [sys.executable, "-P", "-c", _PYTEST, str(file.parent), *options, *settings, *places]
    return subprocess.call(command)


def _counted(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
