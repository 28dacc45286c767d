"""Writes the puzzles' rows: `python prepare.py --split train`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, hub_rows, run_preparation, write_rows

REPOSITORY = "nvidia/Nemotron-RL-ReasoningGym-v1"
DATA = Path(__file__).parent / "data"


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch one split, write it and return the file. Raises PreparationError naming the row that can't be used."""
    path = output or DATA / f"{split}.jsonl"
    rows = (as_row(source, number) for number, source in enumerate(hub_rows(REPOSITORY, split=split), 1))
    write_rows(path, rows, limit=limit)
    return path


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published row as the resources server wants it: an entry of reasoning-gym, and the prompt."""
    question, metadata = source.get("question"), _data(source.get("metadata"), number)
    if not isinstance(question, str) or not question:
        raise PreparationError(f"Row {number} has no question.")
    if not isinstance(metadata, dict) or not metadata.get("source_dataset"):
        raise PreparationError(f"Row {number} has no metadata with a source_dataset.")
    request = _data(source.get("responses_create_params"), number) or {}
    if not request.get("input"):
        request = {**request, "input": [{"role": "user", "content": question}]}
    task = {"question": question, "answer": source.get("answer"), "metadata": metadata}
    return {"responses_create_params": request, **task}


def _data(value: Any, number: int) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PreparationError(f"Row {number} has a field that is no JSON: {value[:80]}") from error


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the puzzles.")
