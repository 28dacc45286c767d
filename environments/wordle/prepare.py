"""Writes rows for Wordle: `python prepare.py --split train`.

The targets are common words. For the whole list of words that count, run resources_servers/wordle/generate_data.py.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from nemo_gym.data_preparation import run_preparation, write_rows

DATA = Path(__file__).parent / "data"


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Write one split, of the words that the server knows, and return the file."""
    from resources_servers.wordle.generate_data import common_targets, make_row, split_targets
    from resources_servers.wordle.words_files import known_words

    path = output or DATA / f"{split}.jsonl"
    train, validation = split_targets(common_targets(known_words()))
    targets = train if split == "train" else validation
    write_rows(path, map(make_row, islice(targets, limit)))
    return path


if __name__ == "__main__":
    run_preparation(prepare, description="Write rows for Wordle.", splits=("train", "validation"))
