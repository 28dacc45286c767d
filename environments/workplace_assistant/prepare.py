"""Writes the office tasks' rows: `python prepare.py --split train`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, fetch_rows, run_preparation

REPOSITORY = "nvidia/Nemotron-RL-agent-workplace_assistant"
DATA = Path(__file__).parent / "data"
TASK_FIELDS = ("ground_truth", "id", "category", "environment_name")


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch one split, write it and return the file. Raises PreparationError naming the row that can't be used."""
    return fetch_rows(REPOSITORY, as_row, output or DATA / f"{split}.jsonl", split=split, limit=limit)


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published row as the resources server wants it: task fields at the top, tools with their schemas."""
    from resources_servers.workplace_assistant.utils import SCHEMAS

    nested = source.get("verifier_metadata") or {}
    task = {field: nested.get(field, source.get(field)) for field in TASK_FIELDS}
    task["ground_truth"] = _calls(task["ground_truth"], number)
    request = source.get("responses_create_params")
    request = dict(json.loads(request) if isinstance(request, str) else request or {"input": source.get("messages")})
    if not request.get("input"):
        raise PreparationError(f"Row {number} has no prompt: it needs responses_create_params.input or messages.")
    request["tools"] = request.get("tools") or SCHEMAS
    return {"responses_create_params": request, **{field: value for field, value in task.items() if value is not None}}


def _calls(value: Any, number: int) -> list[dict[str, Any]]:
    calls = json.loads(value) if isinstance(value, str) else value
    if not isinstance(calls, list) or not all(isinstance(call, dict) and "name" in call for call in calls):
        raise PreparationError(f"Row {number} has no ground_truth that is a list of calls: {str(calls)[:80]}")
    return calls


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the office tasks.", splits=("train", "validation"))
