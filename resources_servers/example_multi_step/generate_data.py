"""Writes rows: `python generate_data.py --split train`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import run_preparation, write_rows
from resources_servers.example_multi_step.app import value_of
from resources_servers.example_multi_step.thesaurus import THESAURUS, synonyms_of

DATA = Path(__file__).parent / "data"
SEEDS = {"train": 1, "validation": 2, "example": 3}
ROWS = {"train": 1000, "validation": 100, "example": 5}

INSTRUCTIONS = """You work with a thesaurus and two tools. You are given one term.

1. Find the term in the thesaurus below, and its synonyms.
2. Call get_synonym_value for each synonym, one call at a time, in the order in which the thesaurus has them. Values
   can't be guessed, and are not in the thesaurus.
3. When you have all values, call extract_synonym_values once with all of them, in the same order.
4. Then say that you are done, and call nothing more.

The term is no synonym of itself: never look up its value, and never hand it in. What stands in brackets behind a term
is an example of its use; words in it are no synonyms. Some words are synonyms of several terms: only the line of your
term counts.

Thesaurus:
"""


def _tool(name: str, description: str, argument: str, schema: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: schema},
        "required": [argument],
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


TOOLS = [
    _tool(
        "get_synonym_value",
        "The value of one synonym.",
        "synonym",
        {"type": "string", "description": "The synonym, as the thesaurus has it"},
    ),
    _tool(
        "extract_synonym_values",
        "Hand in the values of all synonyms.",
        "synonym_values",
        {"type": "array", "items": {"type": "integer"}, "description": "The values, in the order of the synonyms"},
    ),
]


_FRAMES = (
    "the word '{0}' stands before '{1}' here",
    "not '{1}' but '{0}'",
    "between '{0}' and '{1}' I take '{0}'",
    "'{0}', she wrote, and crossed out '{1}'",
)


def make_row(term: str, number: int, rng: random.Random) -> dict[str, Any]:
    """A term to work on, with the thesaurus in an order of its own."""
    order = rng.sample(list(THESAURUS), len(THESAURUS))
    lines = [f'- {each} (as in "{_example(each, rng)}"): {", ".join(synonyms_of(each))}' for each in order]
    messages = [
        {"role": "system", "content": INSTRUCTIONS + "\n".join(lines)},
        {"role": "user", "content": f"Your term is: {term}"},
    ]
    return {
        "responses_create_params": {"input": messages, "tools": TOOLS, "parallel_tool_calls": False},
        "id": number,
        "expected_synonym_values": [value_of(synonym) for synonym in synonyms_of(term)],
        "expected_synonyms": synonyms_of(term),
        "minefield_label": term,
        "minefield_label_value": value_of(term),
    }


def _example(term: str, rng: random.Random) -> str:
    """Words with a term and another one in them."""
    return rng.choice(_FRAMES).format(term, rng.choice([each for each in THESAURUS if each != term]))


def rows(split: str) -> Iterator[dict[str, Any]]:
    """The rows of a split, the same ones each time; every term comes once before one comes twice."""
    rng = random.Random(SEEDS[split])
    terms = rng.sample(list(THESAURUS), len(THESAURUS))
    return (make_row(terms[number % len(terms)], number, rng) for number in range(ROWS[split]))


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Write the rows of a split, and return the file."""
    path = output or DATA / f"{split}.jsonl"
    write_rows(path, rows(split), limit=limit)
    return path


if __name__ == "__main__":
    run_preparation(prepare, description="Write terms and their synonyms.", splits=("train", "validation"))
