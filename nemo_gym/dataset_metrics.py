"""Measuring data sets: the figures, and the hook a server may ship for its own tasks."""

from nemo_gym.datasets.hooks import HOOK_FILE, HOOK_NAME, TaskMetricsHook, load_task_metrics_hook
from nemo_gym.datasets.metrics import DatasetMetrics, MetricValue, TaskMetrics

__all__ = [
    "HOOK_FILE",
    "HOOK_NAME",
    "DatasetMetrics",
    "MetricValue",
    "TaskMetrics",
    "TaskMetricsHook",
    "load_task_metrics_hook",
]
