"""Writes the rows of the flavour dapo17k: `python prepare_dapo17k.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, fetch_rows, run_preparation

REPOSITORY = "YouJiacheng/DAPO-Math-17k-dedup"
DATA = Path(__file__).parent / "data"
PROMPT = "Solve the problem. Reason step by step, and put the final answer in \\boxed{{}}.\n\n{question}"
_INSTRUCTIONS = (
    re.compile(r"\ASolve the following math problem\b[^\n]*\n+"),
    re.compile(r"\n+Remember to put your answer\b[^\n]*\Z"),
)


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch the problems, write them and return the file. Raises PreparationError naming the row that can't be used."""
    return fetch_rows(REPOSITORY, as_row, output or DATA / f"dapo17k_{split}.jsonl", split=split, limit=limit)


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published row as the resources server wants it: the problem without what it asked for as a format."""
    messages, answer = source.get("prompt"), (source.get("reward_model") or {}).get("ground_truth")
    question = messages if isinstance(messages, str) else (messages or [{}])[-1].get("content") or ""
    for instruction in _INSTRUCTIONS:
        question = instruction.sub("", question.strip())
    if not question or not isinstance(answer, str | int):
        raise PreparationError(
            f"Row {number} has no problem with an answer: it needs prompt and reward_model.ground_truth."
        )
    prompt = PROMPT.format(question=question)
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "question": question,
        "expected_answer": str(answer),
    }


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the DAPO-Math-17k problems.")
