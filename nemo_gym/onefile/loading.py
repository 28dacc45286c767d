"""Reading an environment's file."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from nemo_gym.config.hints import closest
from nemo_gym.errors import GymError
from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.errors import EnvironmentFileError, line_in, place_of

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_UNKNOWN_OPTION = re.compile(r"Environment\.__init__\(\) got an unexpected keyword argument '(\w+)'")
USUAL_NAME = "env"


def load_environment(path: Path, *, written_at: Path | None = None) -> Environment:
    """The environment of a file, with a name and a verifier; errors and `__file__` say `written_at` where it is a copy.

    Raises EnvironmentFileError for whatever is wrong with it.
    """
    shown = written_at or path
    environment = environment_in(run_file(path, shown), shown)
    environment.name = environment.name or re.sub(r"\W+", "_", shown.stem).lower()
    if not _NAME.fullmatch(environment.name):
        raise EnvironmentFileError(
            f"{environment.place}: an environment can't be called {environment.name!r}: give it a name of small "
            'letters, digits and underscores, a letter first: `Environment("my_name", …)`.'
        )
    environment.verifier  # noqa: B018 - there must be one
    for tool in environment.tools.values():
        if tool.needs_state and environment.new_state is None:
            raise EnvironmentFileError(
                f"{place_of(tool.function)}: the tool `{tool.name}` takes `state`, and the environment makes none: "
                "give `Environment(state=dict)`, or what makes yours."
            )
    return environment


def run_file(path: Path, shown: Path) -> ModuleType:
    """The module a file makes, with imports from its own folder. Raises EnvironmentFileError naming the line."""
    source = _source(path, shown)
    name = f"_environment_{hashlib.sha256(str(shown).encode()).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = str(shown)
    sys.modules[name] = module
    for folder in dict.fromkeys((str(path.parent), str(shown.parent))):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        exec(compile(source, str(shown), "exec", dont_inherit=True), module.__dict__)
    except SyntaxError as error:
        raise EnvironmentFileError(f"{error.filename}:{error.lineno}: {error.msg}.") from error
    except GymError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFileError(f"{line_in(str(shown), error) or shown}: {_said(error)}.") from error
    return module


def environment_in(module: ModuleType, shown: Path) -> Environment:
    """The environment a module defines: `env`, or the only one. Raises EnvironmentFileError for none or several."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Environment)}
    distinct = {id(value) for value in found.values()}
    if USUAL_NAME in found or len(distinct) == 1:
        variable = USUAL_NAME if USUAL_NAME in found else next(iter(found))
        found[variable].variable = variable
        return found[variable]
    if not distinct:
        raise EnvironmentFileError(f"{shown}: it defines no environment: begin with `env = Environment(tasks=[…])`.")
    raise EnvironmentFileError(f"{shown}: it defines several environments: call the one that is meant `env`.")


def _source(path: Path, shown: Path) -> bytes:
    if shown.suffix != ".py":
        raise EnvironmentFileError(f"{shown}: an environment's file is a Python file (.py).")
    try:
        return path.read_bytes()
    except OSError as error:
        raise EnvironmentFileError(f"{shown}: it can't be read: {error.strerror}.") from error


def _said(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"there is no module `{error.name}`: install it, as with `uv pip install {error.name}`"
    if isinstance(error, TypeError) and (unknown := _UNKNOWN_OPTION.search(str(error))):
        known = inspect.signature(Environment).parameters
        meant = closest(unknown[1], known)
        return f"Environment has no option `{unknown[1]}`: {f'`{meant}` is meant' if meant else 'leave it out'}"
    return f"{type(error).__name__}: {error}"
