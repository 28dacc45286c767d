"""The example rows of a component that was made from an environment's file: they are its tasks."""

from __future__ import annotations

import json
from pathlib import Path

from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.errors import EnvironmentFileError

ENVIRONMENT_FILE = "environment.py"
EXAMPLE_ROWS = Path("data/example.jsonl")


def stale_rows(environment: Environment, folder: Path) -> str:
    """Why the example rows of a folder aren't the tasks any more, and what to do; nothing where they are."""
    path = folder / EXAMPLE_ROWS
    if not environment.tasks or not path.is_file():
        return ""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError:
        rows = []
    made = json.loads(json.dumps(environment.rows()))
    if rows == made:
        return ""
    own = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    what = f"has {own} of its own" if len(rows) == len(made) else f"has {own}, there are {len(made)} tasks"
    return (
        f"{path} {what}, and isn't what {ENVIRONMENT_FILE} makes (its tasks, prompt or tools have changed): "
        f"`gym env init --from {folder / ENVIRONMENT_FILE}` writes it anew."
    )


def component_around(path: Path, environment: Environment) -> Path | None:
    """The folder of the component that a file is the `environment.py` of; None where it is no such file."""
    folder = path.parent
    is_part = path.name == ENVIRONMENT_FILE and folder.parent.name == RESOURCES_SERVERS
    return folder if is_part and folder.name == environment.name and (folder / "app.py").is_file() else None


def refresh(folder: Path, text: str) -> Path | None:
    """Write the example rows of a folder anew; None where they are so already. Raises EnvironmentFileError."""
    path = folder / EXAMPLE_ROWS
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFileError(f"{path} can't be written: {error.strerror}.") from error
    return path
