"""Experiment trackers that a run is told to: Weights & Biases, MLflow, or one of your own."""

from nemo_gym.exporters.base import BaseExporter, ExporterError
from nemo_gym.exporters.opened import (
    EXPORTERS,
    export_metrics,
    export_rollouts,
    get_exporters,
    setup_exporters,
    teardown_exporters,
)

__all__ = [
    "EXPORTERS",
    "BaseExporter",
    "ExporterError",
    "export_metrics",
    "export_rollouts",
    "get_exporters",
    "setup_exporters",
    "teardown_exporters",
]
