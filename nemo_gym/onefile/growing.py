"""From an environment's file to a component's folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.roots import IS_EDITABLE_INSTALL, PARENT_DIR
from nemo_gym.environment.scaffold_files import ScaffoldResult, write_all
from nemo_gym.environment.scaffold_parts import requirement
from nemo_gym.onefile.component import grown_files, rows_text
from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.example_rows import component_around, refresh
from nemo_gym.onefile.loading import load_environment


def scaffold_from_file(path: Path, root: Path | None = None) -> ScaffoldResult:
    """Make the folder of an environment's file below `root` (default: the current folder); the file stays as it is.

    For the `environment.py` of such a folder, its example rows are written anew, and nothing else.

    Raises EnvironmentFileError for a file that is wrong, ScaffoldConflictError where files are in the way.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - symlinks kept
    environment = load_environment(path)
    if environment.name in sys.stdlib_module_names:
        raise EnvironmentFileError(
            f"{environment.place}: a folder can't be called {environment.name!r}, as a module of Python is: give it "
            'another name, as in Environment("my_name", …).'
        )
    if (around := component_around(path, environment)) is not None:
        written = refresh(around, rows_text(environment))
        others = tuple(sorted(file for file in around.rglob("*.py") if file != written))
        return ScaffoldResult(around, (written,) if written else (), others)
    base = (root or Path.cwd()).absolute()
    folder = Path(RESOURCES_SERVERS, environment.name)
    requirements = requirement(base / folder, PARENT_DIR if IS_EDITABLE_INSTALL else None)
    try:
        files = {
            folder / relative: content.decode("utf-8")
            for relative, content in grown_files(environment, path, requirements).items()
        }
    except UnicodeDecodeError as error:
        raise EnvironmentFileError(f"{path}: it isn't written in UTF-8 ({error.reason}): save it so.") from error
    return write_all(base, base / folder, files)
