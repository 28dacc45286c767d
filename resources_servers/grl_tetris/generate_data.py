"""Writes rows: `python generate_data.py --count 1000 --output data/train.jsonl`; their seeds choose the pieces."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import write_rows

INSTRUCTIONS = (
    "You play Tetris on a small board. Pieces come from the top, one at a time, and keep their shape; one that can't "
    "fall any further stays where it is. You win with the first row that is full, and lose when the top row is "
    "reached. Each move counts, so make few. Think if you like, and end with one or more actions in tags."
)


def make_row(seed: int, dim_x: int = 4, dim_y: int = 4, box_type: int = 3) -> dict[str, Any]:
    """The row of a board with the pieces of this seed."""
    messages = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "Here is the board."},
    ]
    return {
        "responses_create_params": {"input": messages},
        "level_id": seed,
        "seed": seed,
        "dim_x": dim_x,
        "dim_y": dim_y,
        "box_type": box_type,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write rows for Tetris.")
    parser.add_argument("--count", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="of the first row (default: %(default)s)")
    parser.add_argument("--columns", type=int, default=4, help="of the boards (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=4, help="of the boards (default: %(default)s)")
    parser.add_argument(
        "--box-type", type=int, default=3, choices=(1, 2, 3), help="which pieces (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "data" / "train.jsonl")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.count)
    rows = (make_row(seed, options.columns, options.rows, options.box_type) for seed in seeds)
    print(f"Written: {write_rows(options.output, rows)} rows to {options.output}")


if __name__ == "__main__":
    main()
