"""Making several files at once, without touching any that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from nemo_gym.environment.errors import ScaffoldConflictError, ScaffoldError

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class ScaffoldResult:
    """The folder that was asked for, the files that were made, and those that were there already, as they would be."""

    asset_dir: Path
    created: tuple[Path, ...]
    existing: tuple[Path, ...]


def filled(template: str, **values: str) -> str:
    """A template with its `$names` filled in."""
    return Template(_text(template)).substitute(values)


@cache
def _text(template: str) -> str:
    return (_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")


def write_all(root: Path, asset_dir: Path, files: Mapping[Path, str]) -> ScaffoldResult:
    """Write files, by their paths below `root`: all of them, or none where one is in the way.

    Raises ScaffoldConflictError naming what is: a symbolic link, a file where a folder is needed, other content.
    """
    conflicts = [conflict for relative, text in files.items() if (conflict := _conflict(root, relative, text))]
    if conflicts:
        raise ScaffoldConflictError("\n".join(["Nothing was written, for these are in the way:", *conflicts]))
    missing = {relative: text for relative, text in files.items() if not (root / relative).exists()}
    for relative, text in missing.items():
        _create(root / relative, text)
    created = tuple(root / relative for relative in missing)
    return ScaffoldResult(asset_dir, created, tuple(root / path for path in files if path not in missing))


def _conflict(root: Path, relative: Path, text: str) -> str | None:
    for part in reversed(relative.parents):
        folder = root / part
        if part != Path() and folder.is_symlink():
            return f"- {folder} is a symbolic link"
        if folder.exists() and not folder.is_dir():
            return f"- {folder} is a file, but must be a folder"
    path = root / relative
    if path.is_symlink():
        return f"- {path} is a symbolic link"
    if path.exists() and (not path.is_file() or path.read_bytes() != text.encode()):
        return f"- {path} exists and is different"
    return None


def _create(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise ScaffoldError(f"{path} can't be made: {error.strerror}.") from error
