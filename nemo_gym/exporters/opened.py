"""The trackers that are open in this process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Mapping
from typing import Any

from nemo_gym.config.notices import warn
from nemo_gym.config.secrets import Redactor, redacted
from nemo_gym.exporters.base import BaseExporter, reason, setting
from nemo_gym.exporters.mlflow_exporter import MLflowExporter
from nemo_gym.exporters.wandb_exporter import WandbExporter

EXPORTERS: dict[str, type[BaseExporter]] = {"wandb": WandbExporter, "mlflow": MLflowExporter}
"""The trackers that are known, by name; add your own."""

_opened: list[BaseExporter] = []
_opened_by: int | None = None


def setup_exporters(config: Mapping[str, Any]) -> None:
    """Close what is open, open every tracker that a config is complete for, and send it the masked config.

    A tracker that can't be opened is warned about and left out.
    """
    global _opened_by
    teardown_exporters()
    for name, kind in EXPORTERS.items():
        if not kind.is_configured(config):
            _tell_what_is_missing(name, kind, config)
            continue
        exporter = kind()
        try:
            exporter.setup(config)
        except Exception as error:
            exporter.abandon()
            why = Redactor.from_config(config)(reason(error))
            warn(f"{name}: nothing is sent there: {why.rstrip('.')}.")
            continue
        _opened.append(exporter)
    if not _opened:
        return
    _opened_by = os.getpid()
    atexit.unregister(teardown_exporters)
    atexit.register(teardown_exporters)
    shown = redacted(config)
    for exporter in _opened:
        exporter.log_config(shown)


def get_exporters() -> list[BaseExporter]:
    """The trackers that are open, as a list of one's own; none in a process forked from the one that opened them."""
    return list(_opened) if _opened_by == os.getpid() else []


def teardown_exporters() -> None:
    """Close every tracker."""
    exporters = get_exporters()
    _opened.clear()
    for exporter in exporters:
        exporter.close()


def export_metrics(metrics: Mapping[str, Any], step: int | None = None) -> None:
    """Send metrics to every open tracker. Never raises."""
    for exporter in get_exporters() if metrics else ():
        exporter.log_metrics(metrics, step)


def export_rollouts(rollouts: Iterable[Mapping[str, Any]]) -> None:
    """Send records to every open tracker. Never raises. A list where several are open: each reads it once."""
    for exporter in get_exporters():
        exporter.log_rollouts(rollouts)


def _tell_what_is_missing(name: str, kind: type[BaseExporter], config: Mapping[str, Any]) -> None:
    """A half-named tracker is a mistake; one of which only the credentials are there is not."""
    missing = [key for key in kind.settings if setting(config, key) is None]
    given = [key for key in kind.settings if key not in missing and key.endswith(("_name", "_project"))]
    if given:
        warn(f"{name}: nothing is sent there, since {' and '.join(given)} is set but {' and '.join(missing)} is not.")
