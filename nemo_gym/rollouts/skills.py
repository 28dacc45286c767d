"""Skill folders that a run gives its agents, and their provenance on every record."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nemo_gym.config.errors import ConfigError

_MANIFEST = "SKILL.md"
_FENCE = "---"


class SkillsError(ConfigError, ValueError):
    """A skills folder can't be used; the message names the file."""


class SkillsConfig(BaseModel):
    """Where the skills of a run are."""

    path: str


class SkillInfo(BaseModel):
    """One skill, as its front matter describes it."""

    name: str
    description: str | None = None
    version: str | None = None


class SkillsRef(BaseModel):
    """What a record says of the skills it was made with; `hash` names the exact content of the folder."""

    path: str
    hash: str
    skills: list[SkillInfo]


def load_skill_directory(path: str) -> SkillsRef:
    """Read every skill below `path` (a folder of folders, each with SKILL.md).

    Raises SkillsError for a missing folder, one without skills, and for front matter that is missing, not closed, not
    YAML, or without a name.
    """
    root = _existing_directory(path)
    folders = sorted(child for child in root.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not folders:
        raise SkillsError(f"{root} has no skills: each skill is a folder with a {_MANIFEST}.")
    return SkillsRef(path=path, hash=_content_hash(root), skills=[_read_skill(folder) for folder in folders])


def stage_skills(path: str, dest_skills_dir: Path) -> None:
    """Copy a skills folder to where an agent looks for it; the destination must not exist."""
    shutil.copytree(_existing_directory(path), dest_skills_dir)


def _existing_directory(path: str) -> Path:
    root = Path(path).expanduser()
    if not root.exists():
        raise SkillsError(f"The skills folder {root} does not exist: check `skills.path`.")
    if not root.is_dir():
        raise SkillsError(f"{root} is not a folder: `skills.path` must name a folder of skills.")
    for entry in root.rglob("*"):
        if entry.is_symlink() and not entry.resolve().is_relative_to(root.resolve()):
            raise SkillsError(f"{entry} is a link that leads out of {root}: put the file itself there.")
    return root


def _content_hash(root: Path) -> str:
    digest = hashlib.sha256()
    files = sorted((file.relative_to(root).as_posix(), file) for file in root.rglob("*") if file.is_file())
    for relative, file in files:
        digest.update(relative.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _read_skill(folder: Path) -> SkillInfo:
    manifest = folder / _MANIFEST
    if not manifest.is_file():
        raise SkillsError(f"{manifest} is missing: every skill folder needs one.")
    fields = _front_matter(manifest)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise SkillsError(f"{manifest} has no `name` in its front matter.")
    metadata = fields.get("metadata")
    version = metadata.get("version") if isinstance(metadata, dict) else None
    description = fields.get("description")
    return SkillInfo(
        name=name,
        description=None if description is None else str(description),
        version=None if version is None else str(version),
    )


def _front_matter(manifest: Path) -> dict[str, Any]:
    import yaml

    lines = manifest.read_text(encoding="utf-8-sig").splitlines()
    if not lines or lines[0].strip() != _FENCE:
        raise SkillsError(f"{manifest} must begin with front matter between two `{_FENCE}` lines.")
    end = next((index for index, line in enumerate(lines[1:], start=1) if line.strip() == _FENCE), None)
    if end is None:
        raise SkillsError(f"The front matter of {manifest} is not closed: add a second `{_FENCE}` line.")
    try:
        fields = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        raise SkillsError(f"The front matter of {manifest} is not valid YAML: {error}") from error
    if not isinstance(fields, dict):
        raise SkillsError(f"The front matter of {manifest} must be a mapping with `name`.")
    return fields
