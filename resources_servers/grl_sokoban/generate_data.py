"""Writes rows: `python generate_data.py --count 1000 --output data/train.jsonl`; their seeds make the levels."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import write_rows

INSTRUCTIONS = (
    "You solve a Sokoban puzzle, a move at a time. Push the boxes onto the targets: you can push one box at a time, "
    "and never pull. Look at the board, think if you like, and end with one action in a tag."
)


def make_row(seed: int, dim_room: tuple[int, int] = (6, 6), num_boxes: int = 1) -> dict[str, Any]:
    """The row of the level with this seed."""
    messages = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "Here is the puzzle."},
    ]
    return {
        "responses_create_params": {"input": messages},
        "level_id": seed,
        "seed": seed,
        "dim_room": list(dim_room),
        "num_boxes": num_boxes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write rows for Sokoban.")
    parser.add_argument("--count", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="of the first row (default: %(default)s)")
    parser.add_argument("--side", type=int, default=6, help="rows and columns of the rooms (default: %(default)s)")
    parser.add_argument("--boxes", type=int, default=1, help="boxes in a room (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "data" / "train.jsonl")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.count)
    rows = (make_row(seed, (options.side, options.side), options.boxes) for seed in seeds)
    print(f"Written: {write_rows(options.output, rows)} rows to {options.output}")


if __name__ == "__main__":
    main()
