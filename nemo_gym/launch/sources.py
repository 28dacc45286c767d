"""What a component's sources say about how it has to be started."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

COMPAT_MODULES = (
    "anthropic",
    "datasets",
    "devtools",
    "gprof2dot",
    "mcp",
    "pandas",
    "pydot",
    "requests",
    "scipy",
    "yappi",
)
"""Modules of the `compat` extra, which carry their distributions' names."""

_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_RAY_ENABLED = re.compile(r"^[ \t]*ray_enabled[ \t]*(?::[^=\n]+)?=[ \t]*(True|False)\b", re.MULTILINE)


def needs_ray(directory: Path) -> bool:
    """Whether a component declares Ray, or declares nothing and imports it."""
    texts = list(_texts(directory))
    declared = {match for text in texts for match in _RAY_ENABLED.findall(text)}
    if declared:
        return "True" in declared
    return any("ray" in _IMPORT.findall(text) for text in texts)


def compat_imports(directory: Path) -> set[str]:
    """Modules a component imports that nobody but the `compat` extra may have brought."""
    return {name for text in _texts(directory) for name in _IMPORT.findall(text) if name in COMPAT_MODULES}


def unconditional_imports(files: Iterable[Path]) -> list[str]:
    """Top-level modules that files can't be imported without: `import`s in no `try`, `if` or function."""
    names: set[str] = set()
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for node in tree.body:
            names.update(_imported(node))
    return sorted(names)


def _imported(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]


def _texts(directory: Path) -> Iterator[str]:
    for path in sorted(directory.rglob("*.py")):
        parts = path.relative_to(directory).parts
        if "tests" not in parts and not any(part.startswith(".") for part in parts):
            yield path.read_text(encoding="utf-8", errors="replace")
