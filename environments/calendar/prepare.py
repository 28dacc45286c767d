"""Writes the published conversations' rows: `python prepare.py --split train`."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.data_preparation import run_preparation

REPOSITORY = "nvidia/Nemotron-RL-agent-calendar_scheduling"
DATA = Path(__file__).parent / "data"


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch one split, write it and return the file. Raises PreparationError naming the row that can't be used."""
    from resources_servers.calendar.published import fetch

    return fetch(REPOSITORY, split, output or DATA / f"{split}.jsonl", limit)


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch conversations about a calendar.")
