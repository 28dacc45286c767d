"""The task: sums of two digits as multiple choice questions for `mcqa`; and the words the model knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

LETTERS = ("A", "B", "C", "D")
SUMS = (5, 6, 7, 8)
END = "<end>"
WORDS = (
    *("<user>", "<assistant>", END, "What", "is", "+", "?", "\n", ")", *LETTERS),
    *("\\boxed{", "}", *(str(digit) for digit in range(9))),
)
_IDS = {word: index for index, word in enumerate(WORDS)}


def encode(words: Iterable[str]) -> list[int]:
    """Raises ValueError for a word the model doesn't know."""
    try:
        return [_IDS[word] for word in words]
    except KeyError as error:
        raise ValueError(f"The model doesn't know the word {error}. It knows {' '.join(WORDS)!r}.") from None


def decode(ids: Iterable[int]) -> str:
    """The text of generated ids; the end of an answer is no text."""
    return "".join(WORDS[index] for index in ids if WORDS[index] != END)


def render(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The chat template: roles, the words of each message, and the assistant's turn."""
    words: list[str] = []
    for message in messages:
        words.append(f"<{message['role']}>")
        words.extend(message["content"].replace("\n", " \n ").replace(")", " )").split(" "))
    return encode(word for word in [*words, "<assistant>"] if word)


def question(first: int, second: int) -> str:
    options = "\n".join(f"{letter}) {total}" for letter, total in zip(LETTERS, SUMS, strict=True))
    return f"What is {first} + {second} ?\n{options}"


def pairs() -> list[tuple[int, int]]:
    """Every question there is."""
    return [(first, second) for first in range(9) for second in range(9) if first + second in SUMS]


def answer(first: int, second: int) -> str:
    return LETTERS[SUMS.index(first + second)]


def row(first: int, second: int) -> dict[str, Any]:
    """A question as a row of the environment `mcqa`."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question(first, second)}]},
        "options": [{letter: str(total)} for letter, total in zip(LETTERS, SUMS, strict=True)],
        "expected_answer": answer(first, second),
        "grading_mode": "strict_single_letter_boxed",
        "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
    }


def demonstrations(rng: np.random.Generator, count: int, *, guessed: float) -> list[list[int]]:
    """Prompts with answers, `guessed` of them (a share) a letter at random: what the base model learns from."""
    choices, found = pairs(), []
    for index in rng.integers(len(choices), size=count):
        pair = choices[index]
        letter = LETTERS[rng.integers(4)] if rng.random() < guessed else answer(*pair)
        prompt = render([{"role": "user", "content": question(*pair)}])
        found.append(prompt + encode(["\\boxed{", letter, "}", END]))
    return found
