"""What a component asks for: its manifest, with the line that means this checkout told from the rest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.interpreter import DISTRIBUTION, extra_requires_something, installed_version

OVERRIDES_NAME = "overrides.txt"

_SELF = re.compile(r"nemo[-_.]+gym\s*(?:\[(?P<extras>[^\]]*)\])?\s*(?P<rest>$|[@=<>!~;(].*)", re.IGNORECASE)
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(.+)")
_PATH = re.compile(r"(?P<path>\.{1,2}(?:/[^\[]*)?|/[^\[]*|file:[^\[]*)(?:\[(?P<extras>[^\]]*)\])?")
_NESTED = re.compile(r"(?:-r|--requirement)(?:\s+|=)(.+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Requirements:
    """`lines` are requirements and index options without the line for nemo-gym, whose extras are in `extras`."""

    directory: Path
    lines: tuple[str, ...]
    extras: frozenset[str]
    overrides: Path | None = None
    tool_table: str = ""

    @property
    def asks_for_something(self) -> bool:
        """Whether anything may have to be installed beside what the base has."""
        return any(not is_option(line) for line in self.lines) or any(map(extra_requires_something, self.extras))

    @property
    def self_line(self) -> str | None:
        """This installation by its exact version, so that no index is asked for it; None when it has no metadata."""
        version = installed_version()
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return None if version is None else f"{DISTRIBUTION}{extras}=={version}"

    @property
    def local_lines(self) -> tuple[str, ...]:
        """Lines that name a folder or file instead of a package."""
        return tuple(line for line in self.lines if is_local(line))

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(line for line in self.lines if is_option(line))

    def text(self) -> str:
        """Everything that decides what gets installed, for a digest."""
        overrides = "" if self.overrides is None else self.overrides.read_text(encoding="utf-8")
        return "\n".join([*self.lines, "|", self.self_line or "", "|", overrides, "|", self.tool_table])


def read_requirements(directory: Path, *, for_tests: bool = False) -> Requirements:
    """The manifest of a component's folder. `[dev]` of nemo-gym is dropped unless it is for tests.

    Raises VenvError when the folder has no manifest, two of them, or one that can't be read.
    """
    text_file, project_file = directory / "requirements.txt", directory / "pyproject.toml"
    if text_file.is_file() == project_file.is_file():
        have = "both requirements.txt and pyproject.toml" if text_file.is_file() else "no requirements.txt"
        raise VenvError(f"{directory} has {have}: it must have one manifest.")
    lines = list(_read_lines(text_file) if text_file.is_file() else _project_lines(project_file))
    kept: list[str] = []
    extras: set[str] = set()
    for line in lines:
        own = extras_of_self(line, directory)
        if own is None:
            kept.append(line)
        else:
            extras |= own
    overrides = directory / OVERRIDES_NAME
    return Requirements(
        directory,
        tuple(kept),
        frozenset(extras if for_tests else extras - {"dev"}),
        overrides if overrides.is_file() else None,
        _tool_table(project_file if project_file.is_file() else PARENT_DIR / "pyproject.toml"),
    )


def extras_of_self(line: str, directory: Path) -> frozenset[str] | None:
    """The extras in a line that means nemo-gym, by name or by the path of this checkout; None for any other line."""
    editable = _EDITABLE.fullmatch(line)
    target = editable.group(1).strip() if editable else line
    named = _SELF.fullmatch(target)
    if named:
        return _split(named.group("extras"))
    path = _PATH.fullmatch(target)
    if path and _is_checkout(directory, Path(path.group("path").strip())):
        return _split(path.group("extras"))
    return None


def is_option(line: str) -> bool:
    """An index option, such as `--extra-index-url …`."""
    return line.startswith("-") and not _EDITABLE.fullmatch(line)


def is_local(line: str) -> bool:
    target = line.partition(" @ ")[2].strip() or line
    return bool(_EDITABLE.fullmatch(line)) or bool(_PATH.fullmatch(target.partition(";")[0].strip()))


def requirement_name(line: str) -> str:
    """The package a line names, in lower case with dashes; empty for options and bare paths."""
    if is_option(line) or _EDITABLE.fullmatch(line):
        return ""
    match = _NAME.match(line)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""


def _read_lines(path: Path, seen: tuple[Path, ...] = ()) -> Iterator[str]:
    """Logical lines: comments off, continuations joined, `-r` files in place."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VenvError(f"{path} can't be read ({error}): it must be a text file of requirements.") from error
    if path in seen:
        raise VenvError(f"{path} includes itself: remove that -r line.")
    for raw in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        nested = _NESTED.fullmatch(line)
        if nested:
            yield from _read_lines(path.parent / nested.group(1).strip(), (*seen, path))
        elif line:
            yield line


def _project_lines(path: Path) -> Iterator[str]:
    project = _load_toml(path)
    sources = project.get("tool", {}).get("uv", {}).get("sources", {})
    for line in project.get("project", {}).get("dependencies", []):
        yield _with_source(str(line), sources.get(requirement_name(str(line))))


def _with_source(line: str, source: Any) -> str:
    """A dependency with the place its `[tool.uv.sources]` entry names."""
    if not isinstance(source, dict):
        return line
    match = re.match(r"[A-Za-z0-9._-]+\s*(\[[^\]]*\])?", line)
    name = match.group().strip() if match else line
    if "git" in source:
        revision = source.get("rev") or source.get("tag") or source.get("branch")
        return f"{name} @ git+{source['git']}" + (f"@{revision}" if revision else "")
    if "url" in source:
        return f"{name} @ {source['url']}"
    if "path" in source:
        extras = match.group(1) or "" if match else ""
        return f"-e {source['path']}{extras}" if source.get("editable") else f"{source['path']}{extras}"
    return line


def _tool_table(path: Path) -> str:
    return repr(_load_toml(path).get("tool", {}).get("uv", {})) if path.is_file() else ""


def _load_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise VenvError(f"{path} can't be read ({error}): correct it.") from error


def _is_checkout(directory: Path, path: Path) -> bool:
    """Two folders up from a component is the checkout by convention, also where a wheel is installed instead."""
    return path == Path("../..") or (directory / path).resolve() == PARENT_DIR.resolve()


def _split(extras: str | None) -> frozenset[str]:
    return frozenset(extra.strip().lower() for extra in (extras or "").split(",") if extra.strip())
