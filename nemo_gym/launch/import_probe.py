"""Whether a venv that somebody else built can run a server: its entrypoint's imports are all there to be found."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nemo_gym.config.roots import IS_EDITABLE_INSTALL, PARENT_DIR
from nemo_gym.launch.sources import unconditional_imports

PROBE_SECONDS = 60.0
_CODE = """
import importlib.util, sys
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
print(*[name for name in sys.argv[1:] if not found(name)])
"""


def why_unusable(python: Path, directory: Path, entrypoints: Sequence[str]) -> str | None:
    """None when the venv will do, else what is wrong with it."""
    names = unconditional_imports(directory / name for name in entrypoints)
    try:
        done = subprocess.run(
            [str(python), "-c", _CODE, "nemo_gym", *names],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": component_path(directory, os.environ.get("PYTHONPATH"))},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its interpreter can't be run ({error})"
    if done.returncode != 0:
        return f"its interpreter fails ({(done.stderr.strip().splitlines() or ['no message'])[-1]})"
    missing = done.stdout.split()
    return f"it lacks {', '.join(missing)}" if missing else None


def component_path(directory: Path, inherited: str | None) -> str:
    """PYTHONPATH of a server: its own folder, the checkout, then what was there."""
    entries = [
        str(directory),
        *([str(PARENT_DIR)] if IS_EDITABLE_INSTALL else []),
        *(inherited or "").split(os.pathsep),
    ]
    return os.pathsep.join(dict.fromkeys(entry for entry in entries if entry))
