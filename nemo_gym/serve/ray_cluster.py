"""Ray, for the servers that ask for it."""

from __future__ import annotations

import ast
import atexit
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

ADDRESS_ENV = "RAY_ADDRESS"
"""Ray's own variable, set for the program of a Ray job."""

_started_by: int | None = None


def get_ray() -> ModuleType:
    """The ray package, imported now."""
    return importlib.import_module("ray")


def sources_import_ray(directory: Path) -> bool:
    """Whether a component's own sources (its tests aside) import ray anywhere."""
    return any(
        _imports_ray(path)
        for path in directory.rglob("*.py")
        if not {"tests", ".venv"} & set(path.relative_to(directory).parts)
    )


def _imports_ray(path: Path) -> bool:
    source = path.read_bytes()
    if b"ray" not in source:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(_names_ray(node) for node in ast.walk(tree))


def _names_ray(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] == "ray" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "ray"


def join_or_start(ray: Any, address: str | None, remember: Callable[[str], None], **options: Any) -> None:
    """Connect this process to the cluster at `address`; without one start a local cluster and `remember` its address.

    Nothing happens when the process is connected already. A cluster started here ends with this process. Inside a Ray
    job the environment names the cluster.
    """
    global _started_by
    if ray.is_initialized():
        return
    if address or os.environ.get(ADDRESS_ENV):
        ray.init(address=address or os.environ[ADDRESS_ENV], ignore_reinit_error=True, **options)
        return
    ray.init(address="local", ignore_reinit_error=True, include_dashboard=False, **options)
    remember(ray.get_runtime_context().gcs_address)
    _started_by = os.getpid()
    atexit.register(shut_down_own_cluster, ray)


def shut_down_own_cluster(ray: Any) -> None:
    """End the cluster, if this very process started it."""
    global _started_by
    if _started_by == os.getpid():
        _started_by = None
        ray.shutdown()
