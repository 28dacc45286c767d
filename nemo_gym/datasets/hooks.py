"""A server's own measurements of its tasks: `compute_task_metrics` in its `dataset_metrics.py`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.datasets.errors import DatasetError
from nemo_gym.datasets.metrics import FRAMEWORK_NAMES, TaskMetrics

HOOK_FILE = "dataset_metrics.py"
HOOK_NAME = "compute_task_metrics"

TaskMetricsHook = Callable[[Mapping[str, Any]], TaskMetrics]


def no_task_metrics(task_input: Mapping[str, Any]) -> TaskMetrics:
    """What servers without a hook measure: nothing."""
    return {}


def load_task_metrics_hook(server_dir: Path | None) -> TaskMetricsHook:
    """The hook of a server's folder, checked at every call; one that measures nothing when it ships none.

    Raises DatasetError when the file can't be imported or has no `compute_task_metrics`.
    """
    path = server_dir / HOOK_FILE if server_dir is not None else None
    if path is None or not path.is_file():
        return no_task_metrics
    hook = getattr(_imported(path), HOOK_NAME, None)
    if not callable(hook):
        raise DatasetError(f"{path} has no function {HOOK_NAME}.")

    def checked(task_input: Mapping[str, Any]) -> TaskMetrics:
        return _checked(hook(task_input), path)

    return checked


def _imported(path: Path) -> Any:
    name = f"_nemo_gym_dataset_metrics_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise DatasetError(f"{path} can't be imported: {type(error).__name__}: {error}.") from error
    return module


def _checked(metrics: Any, path: Path) -> TaskMetrics:
    if not isinstance(metrics, Mapping):
        raise DatasetError(f"{HOOK_NAME} in {path} returned {type(metrics).__name__}: it must return a mapping.")
    for name in metrics:
        if not isinstance(name, str) or not name:
            raise DatasetError(f"{HOOK_NAME} in {path} measured something under {name!r}: names are non-empty texts.")
        if name in FRAMEWORK_NAMES:
            raise DatasetError(f"{HOOK_NAME} in {path} uses the name {name!r}, which Gym measures itself.")
    return metrics
