"""Runs over a cluster's nodes by the real command line, and what is checked of their books."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.e2e.harness import ROOT, Workplace
from tests.ray.cluster import LocalCluster

SERVERS = ("--resources-server", "example_session_state_mgmt", "--model-type", "openai_model")
AGENT, RESOURCES, MODEL = "example_session_state_mgmt_simple_agent", "example_session_state_mgmt", "policy_model"
ROWS = 24


def on(cluster: LocalCluster) -> tuple[str, ...]:
    return ("+placement=ray", f"+ray_head_node_address={cluster.address}")


def counting_row(number: int) -> dict[str, Any]:
    """A row whose counter begins where no other's does: only a session of its own brings it where it has to be."""
    shipped = ROOT / "resources_servers/example_session_state_mgmt/data/example.jsonl"
    row: dict[str, Any] = json.loads(shipped.read_text().splitlines()[0])
    return {**row, "initial_count": number, "expected_count": number + 3}


def write_rows(place: Workplace, count: int = ROWS) -> None:
    place.write_rows("rows.jsonl", [counting_row(number) for number in range(count)])


def assert_complete(place: Workplace, text: str, count: int = ROWS) -> None:
    """Every rollout is in the books, once, and measured."""
    records = place.read_rows("r.jsonl")
    assert Counter(record["_ng_task_index"] for record in records) == Counter(range(count)), text
    assert all(record["reward"] == 1.0 for record in records), text
    assert f"{count} asked: {count} measured, 0 failed, 0 unknown" in text, text
    assert "Traceback" not in text, text
    (metrics,) = json.loads((place.folder / "r_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == 1.0
