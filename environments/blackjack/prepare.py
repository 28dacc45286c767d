"""Writes rows for blackjack: `python prepare.py --limit 1000`; each has a seed of its own, so its cards are the same
whenever it is played."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import run_preparation, write_rows

DATA = Path(__file__).parent / "data"
ROWS = 1000


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Write `limit` rows and return the file."""
    path = output or DATA / f"{split}.jsonl"
    params = json.loads((DATA / "example.jsonl").read_text(encoding="utf-8").split("\n")[0])["responses_create_params"]
    write_rows(path, (make_row(seed, params) for seed in count()), limit=ROWS if limit is None else limit)
    return path


def make_row(seed: int, params: dict[str, Any]) -> dict[str, Any]:
    """The row of one deck."""
    return {"responses_create_params": params, "seed": seed}


if __name__ == "__main__":
    run_preparation(prepare, description="Write rows for blackjack.")
