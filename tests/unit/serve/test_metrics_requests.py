"""What `/aggregate_metrics` takes, at servers of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.security.kinds import kind

KINDS = ("resources", "agent", "environment")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("index", ["1", 1.5, True, [1], {"a": 1}, 2**63], ids=str)
@pytest.mark.parametrize("field", ["_ng_task_index", "_ng_rollout_index"])
def test_an_index_that_is_no_integer_is_refused_with_row_and_field(name: str, index: Any, field: str) -> None:
    rows = [{"reward": 1.0}, {"reward": 1.0, field: None}, {"reward": 0.0, field: index}]
    client = TestClient(kind(name).app, base_url="http://127.0.0.1")
    reply = client.post("/aggregate_metrics", json={"verify_responses": rows})
    assert reply.status_code == 422
    (error,) = reply.json()["detail"]
    assert error["loc"] == ["body", "verify_responses"] and f"row 2: `{field}` must be an integer" in error["msg"]


@pytest.mark.parametrize("name", KINDS)
def test_indices_may_be_absent(name: str) -> None:
    client = TestClient(kind(name).app, base_url="http://127.0.0.1")
    rows = [{"reward": 1.0}, {"reward": 0.0, "_ng_task_index": 1, "_ng_rollout_index": None}]
    assert client.post("/aggregate_metrics", json={"verify_responses": rows}).status_code == 200
