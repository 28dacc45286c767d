"""The prompt of a puzzle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

INSTRUCTIONS = (
    "Each example below is a pair of grids: an input, and what a hidden rule makes of it. Cells are numbers from 0 to "
    "9, each of which stands for a colour. Find the rule that explains all examples, and apply it to the last input. "
    "Put the grid it gives, as a list of rows, in \\boxed{}."
)


def prompt(train: Sequence[Mapping[str, Any]], test_input: Any) -> str:
    """What a model is told of a puzzle."""
    pairs = [f"Example {n}\nInput: {pair['input']}\nOutput: {pair['output']}" for n, pair in enumerate(train, 1)]
    return "\n\n".join([INSTRUCTIONS, *pairs, f"Now\nInput: {test_input}\nOutput:"])


def row(train: Sequence[Mapping[str, Any]], test: Mapping[str, Any], task_id: str) -> dict[str, Any]:
    """A row for the puzzle with one of its tests: `input` and `output` grids."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt(train, test["input"])}]},
        "train": [{"input": pair["input"], "output": pair["output"]} for pair in train],
        "test_input": test["input"],
        "expected_output": test["output"],
        "task_id": task_id,
    }
