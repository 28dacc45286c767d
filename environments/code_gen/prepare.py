"""Writes the programming problems' rows: `python prepare.py --split train`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, fetch_rows, run_preparation

REPOSITORY = "nvidia/nemotron-RL-coding-competitive_coding"
DATA = Path(__file__).parent / "data"
OWN_FIELDS = ("hash_id", "dataset", "source")


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch one split, write it and return the file. Raises PreparationError naming the row that can't be used."""
    return fetch_rows(REPOSITORY, as_row, output or DATA / f"{split}.jsonl", split=split, limit=limit)


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published row as the resources server wants it: its tests in `verifier_metadata`, as data and not as text."""
    request, metadata = (_data(source.get(key)) for key in ("responses_create_params", "verifier_metadata"))
    metadata = dict(metadata or {})
    metadata["unit_tests"] = _data(metadata.get("unit_tests") or source.get("unit_tests"))
    if not request or not request.get("input"):
        raise PreparationError(f"Row {number} has no prompt: it needs responses_create_params.input.")
    if not isinstance(metadata["unit_tests"], dict):
        raise PreparationError(f"Row {number} has no unit_tests to grade a program with.")
    if not metadata["unit_tests"].get("fn_name"):
        metadata["unit_tests"].pop("fn_name", None)
    own = {field: source[field] for field in OWN_FIELDS if source.get(field) is not None}
    return {"responses_create_params": request, "verifier_metadata": metadata, **own}


def _data(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the programming problems.", splits=("train", "validation"))
