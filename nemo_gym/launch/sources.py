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
_MENTIONED = re.compile(r"^[ \t]*(?:import|from)[ \t]+([^\n(]+(?:\([^)]*\))?)", re.MULTILINE)
_SHAREABLE = re.compile(r"^[ \t]*shareable[ \t]*(?::[^=\n]+)?=[ \t]*(True|False)\b", re.MULTILINE)
_EXPOSES_TOOLS = re.compile(r"^[ \t]*expose_tools_over_mcp[ \t]*:[ \t]*true\b", re.MULTILINE)
_RAY_ENABLED = re.compile(r"^[ \t]*ray_enabled[ \t]*(?::[^=\n]+)?=[ \t]*(True|False)\b", re.MULTILINE)


def needs_ray(directory: Path) -> bool:
    """Whether a component declares Ray, or declares nothing and imports it."""
    texts = list(_texts(directory))
    declared = {match for text in texts for match in _RAY_ENABLED.findall(text)}
    if declared:
        return "True" in declared
    return any("ray" in _IMPORT.findall(text) for text in texts)


def compat_imports(directory: Path) -> set[str]:
    """Modules a component's server imports, or has imported for it, that only the `compat` extra may have brought.

    Scripts beside the server count only when the server imports them.
    """
    imported = {name for text in _served_texts(directory) for name in _IMPORT.findall(text) if name in COMPAT_MODULES}
    return imported | ({"mcp"} if _exposes_tools(directory) else set())


def _exposes_tools(directory: Path) -> bool:
    """Whether a config of the component has its tools served over MCP."""
    configs = (path.read_text(encoding="utf-8", errors="replace") for path in sorted(directory.glob("configs/*.yaml")))
    return any(_EXPOSES_TOOLS.search(text) for text in configs)


def shared_class(directory: Path, entrypoint: Path) -> str | None:
    """The class an entrypoint serves, when that may share a process with other servers; else None.

    The component must declare it, do nothing but serve when run as a program, and import nothing by a name that means
    another thing outside its folder.
    """
    declared = {match for text in _texts(directory) for match in _SHAREABLE.findall(text)}
    if declared != {"True"} or _imports_siblings(directory):
        return None
    try:
        tree = ast.parse(entrypoint.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    return next((name for node in tree.body if (name := _served_by(node)) is not None), None)


def _served_by(node: ast.stmt) -> str | None:
    """`C` in `if __name__ == "__main__": C.run_webserver()`."""
    if not isinstance(node, ast.If) or ast.unparse(node.test) != "__name__ == '__main__'" or len(node.body) != 1:
        return None
    match node.body[0]:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "run_webserver"), args=[], keywords=[])):
            return name
    return None


def _imports_siblings(directory: Path) -> bool:
    siblings = {path.stem for path in directory.glob("*.py")}
    siblings |= {path.parent.name for path in directory.glob("*/__init__.py")}
    return any(siblings.intersection(_IMPORT.findall(text)) for text in _texts(directory))


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


def _served_texts(directory: Path) -> list[str]:
    """Sources that may be loaded by whatever serves, followed by the names in `import`s; all, when nothing serves."""
    texts = dict(_sources(directory))
    reached = [path for path, text in texts.items() if "run_webserver" in text]
    for path in reached:
        names = {name for line in _MENTIONED.findall(texts[path]) for name in re.findall(r"\w+", line)}
        reached += [other for other in texts if other not in reached and names.intersection((*other.parts, other.stem))]
    return [texts[path] for path in reached] or list(texts.values())


def _texts(directory: Path) -> Iterator[str]:
    return (text for _, text in _sources(directory))


def _sources(directory: Path) -> Iterator[tuple[Path, str]]:
    """Path within the component and text of each source that is no test."""
    for path in sorted(directory.rglob("*.py")):
        inner = path.relative_to(directory)
        if "tests" not in inner.parts and not any(part.startswith(".") for part in inner.parts):
            yield inner, path.read_text(encoding="utf-8", errors="replace")
