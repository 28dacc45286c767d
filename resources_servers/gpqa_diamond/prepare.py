"""Writes the published questions of GPQA Diamond as rows: `python prepare.py`."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, hub_rows, run_preparation, write_rows

REPOSITORY, SUBSET, SPLIT = "Idavidrein/gpqa", "gpqa_diamond", "train"
DATA = Path(__file__).parent / "data"
LETTERS = "ABCD"
COLUMNS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
PROMPT = (
    "Answer this question by one of the four options. Reason step by step, and end with the letter of the option in a "
    "box, like this: \\boxed{{X}}\n\n{question}\n\n{options}"
)


def prepare(split: str = "validation", output: Path | None = None, limit: int | None = None) -> Path:
    """Fetch the questions, write them and return the file. The publisher must have given the account access.

    Raises PreparationError naming the row that can't be used.
    """
    path = output or DATA / f"{split}.jsonl"
    published = hub_rows(REPOSITORY, split=SPLIT, config=SUBSET)
    write_rows(path, (as_row(source, number) for number, source in enumerate(published, 1)), limit=limit)
    return path


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published row as the resources server wants it. The order of the options depends on the question alone."""
    texts = [str(source.get(column) or "").strip() for column in ("Question", *COLUMNS)]
    if not all(texts):
        raise PreparationError(f"Row {number} lacks one of the columns {', '.join(('Question', *COLUMNS))}.")
    question, right, *_ = texts
    options = texts[1:]
    random.Random(hashlib.md5(question.encode(), usedforsecurity=False).hexdigest()).shuffle(options)
    listed = "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=True))
    prompt = PROMPT.format(question=question, options=listed)
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, question)),
        "options": [{letter: text} for letter, text in zip(LETTERS, options, strict=True)],
        "expected_answer": LETTERS[options.index(right)],
        "metadata": {
            "explanation": source.get("Explanation"),
            "subset_for_metrics": source.get("Subdomain"),
            "difficulty": source.get("Writer's Difficulty Estimate"),
        },
    }


if __name__ == "__main__":
    run_preparation(prepare, description="Fetch the questions of GPQA Diamond.", splits=("validation",))
