"""What trackers are sent of a run's files when it has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.config.secrets import Redactor
from nemo_gym.exporters.opened import export_metrics, get_exporters
from nemo_gym.results.jsonl import JsonLines
from nemo_gym.results.records import rollout_key

_PAYLOADS = ("request", "response", "request_raw", "response_raw")


def send_metrics(aggregate_metrics: Path) -> None:
    """Send a metrics file: `<agent>/<metric>` and `key_metrics/<agent>/<metric>` for every plain value."""
    try:
        entries = json.loads(aggregate_metrics.read_bytes())
    except (OSError, ValueError):
        return
    metrics: dict[str, Any] = {}
    for entry in entries:
        label = entry["agent_ref"]["name"]
        metrics |= _plain_values(entry.get("agent_metrics"), f"{label}/")
        metrics |= _plain_values(entry.get("key_metrics"), f"key_metrics/{label}/")
    export_metrics(metrics)


def send_coverage(*, expected: int, scored: int, imputed: int | None = None) -> None:
    """Send how many rollouts there should be, how many the score is made of, and how many of those count as zero."""
    counts = {"expected": expected, "scored": scored, "missing": expected - scored}
    counts |= {} if imputed is None else {"imputed": imputed}
    export_metrics({f"coverage/{name}": count for name, count in counts.items()})


def send_rollouts(output: Path, failures: Path, redact: Redactor) -> None:
    """Send the records of a run, and the last failure of each rollout that has none."""
    for exporter in get_exporters():
        exporter.log_rollouts(_records(output, failures, redact))


def _records(output: Path, failures: Path, redact: Redactor) -> Iterator[dict[str, Any]]:
    """Records without what is large and found elsewhere, one at a time."""
    measured: set[object] = set()
    for line in JsonLines(output, "--output"):
        measured.add(_key(line.record))
        yield redact.in_data(_without_payloads(line.record))
    if not failures.exists():
        return
    last = {_key(line.record): line.record for line in JsonLines(failures, "--output")}
    for key, record in last.items():
        if key not in measured:
            yield redact.in_data(_without_payloads(record))


def _key(record: Mapping[str, Any]) -> object:
    try:
        return rollout_key(record)
    except ValueError:
        return id(record)


def _without_payloads(record: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in record.items() if name != "ng_trajectory"}
    capture = kept.get("ng_model_call_capture")
    calls = capture.get("calls") if isinstance(capture, Mapping) else None
    if isinstance(capture, Mapping) and isinstance(calls, list):
        kept["ng_model_call_capture"] = {**capture, "calls": [_without_bodies(call) for call in calls]}
    return kept


def _without_bodies(call: Any) -> Any:
    return {name: call[name] for name in call if name not in _PAYLOADS} if isinstance(call, dict) else call


def _plain_values(values: Any, prefix: str) -> dict[str, Any]:
    items = values.items() if isinstance(values, Mapping) else ()
    return {f"{prefix}{name}": value for name, value in items if isinstance(value, bool | int | float | str)}
