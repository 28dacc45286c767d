"""A venv that holds only what a component adds, with the base behind it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from nemo_gym.launch.interpreter import Base

STAMP_NAME = ".nemo-gym-overlay.json"
LINK_NAME = "zzzz_nemo_gym_base.pth"
"""Sorts last, so that editable installs of the overlay come before the base."""

_ACTIVATE = """\
# Source this file from a POSIX shell: it puts this environment's python first.
deactivate () {
    PATH="$_GYM_OLD_PATH"
    export PATH
    unset VIRTUAL_ENV _GYM_OLD_PATH
    unset -f deactivate
}
_gym_here="${BASH_SOURCE:-$0}"
VIRTUAL_ENV="$(cd "$(dirname "$_gym_here")/.." && pwd)"
_GYM_OLD_PATH="$PATH"
PATH="$VIRTUAL_ENV/bin:$PATH"
export VIRTUAL_ENV PATH
unset _gym_here
"""


@dataclass(frozen=True)
class Stamp:
    """What a finished overlay says about itself.

    `digest` stands for requirements, base and interpreter. `added` are its distributions. `with_tests` is set when the
    `dev` extra was kept; `adopted` when somebody else built the venv and it was found good.
    """

    digest: str
    added: list[str]
    with_tests: bool = False
    adopted: bool = False

    def write(self, venv: Path) -> None:
        (venv / STAMP_NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_stamp(venv: Path) -> Stamp | None:
    """None for a venv that was never finished, or not by us."""
    try:
        return Stamp(**json.loads((venv / STAMP_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_bare_venv(venv: Path, base: Base) -> None:
    """The least that `<venv>/bin/python`, `source bin/activate` and the site module need; no process is started."""
    binaries, library = venv / "bin", venv / base.library
    binaries.mkdir(parents=True)
    library.mkdir(parents=True)
    (binaries / "python").symlink_to(base.home_executable)
    for name in ("python3", base.home_executable.name):
        if name != "python" and not (binaries / name).is_symlink():
            (binaries / name).symlink_to("python")
    (binaries / "activate").write_text(_ACTIVATE, encoding="utf-8")
    (venv / "pyvenv.cfg").write_text(
        f"home = {base.home_executable.parent}\n"
        f"include-system-site-packages = false\nversion_info = {base.version}\nrelocatable = true\n",
        encoding="utf-8",
    )


def link_base(venv: Path, base: Base) -> None:
    """Make the base's packages importable behind the venv's own, its `.pth` files included."""
    lines = [f"import site; site.addsitedir({os.fspath(folder)!r})\n" for folder in base.site_directories]
    (venv / base.library / LINK_NAME).write_text("".join(lines), encoding="utf-8")


def provided_modules(venv: Path, base: Base) -> frozenset[str]:
    """Top-level names the venv itself can import."""
    try:
        entries = [path.name for path in (venv / base.library).iterdir()]
    except OSError:
        return frozenset()
    return frozenset(
        name.partition(".")[0]
        for name in entries
        if not name.endswith((".dist-info", ".pth", ".data", ".egg-info")) and name != "__pycache__"
    )
