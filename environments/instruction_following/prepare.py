"""Writes the rows with instructions: `python prepare.py --split train`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, fetch_rows, run_preparation

REPOSITORY = "nvidia/Nemotron-RL-instruction_following"
DATA = Path(__file__).parent / "data"
TASK_FIELDS = ("instruction_id_list", "prompt", "kwargs", "grading_mode")


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch one split, write it and return the file. Raises PreparationError naming the row that can't be used."""
    return fetch_rows(REPOSITORY, as_row, output or DATA / f"{split}.jsonl", split=split, limit=limit)


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published row as the resources server wants it; one without an id gets its number."""
    nested = _data(source.get("verifier_metadata"), number) or {}
    task = {field: nested.get(field, source.get(field)) for field in TASK_FIELDS}
    task = {
        name: _data(value, number) if name in ("instruction_id_list", "kwargs") else value
        for name, value in task.items()
    }
    for field in ("instruction_id_list", "kwargs"):
        if not isinstance(task[field], list):
            raise PreparationError(f"Row {number} has no {field} that is a list.")
    request = _data(source.get("responses_create_params"), number)
    if not request or not request.get("input"):
        request = {"input": [{"role": "user", "content": task["prompt"]}]}
    if not task["prompt"]:
        raise PreparationError(f"Row {number} has no prompt.")
    others = {name: value for name, value in source.items() if name not in ("verifier_metadata", *TASK_FIELDS)}
    row = {**others, "responses_create_params": request, "id": source.get("id", number), **task}
    return {name: value for name, value in row.items() if value is not None}


def _data(value: Any, number: int) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PreparationError(f"Row {number} has a field that is no JSON: {value[:80]}") from error


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the rows with instructions.")
