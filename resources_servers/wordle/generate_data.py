"""Writes the word list and the rows: `python generate_data.py [--words FILE]`.

The words are those of five letters of ENABLE, a list in the public domain, fetched unless a file is given; the targets
are the common ones among them.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, write_rows
from nemo_gym.errors import GymError
from resources_servers.wordle.words_files import COMMON, FOLDER, GUESSES, read_words

ENABLE_URL = "https://norvig.com/ngrams/enable1.txt"
SEED = 42
VALIDATION_SHARE = 0.15
WORD_LENGTH = 5
MAX_TURNS = 6

INSTRUCTIONS = (
    "You play Wordle: find a word of {length} letters with at most {turns} guesses. Guess with submit_guess. The "
    "feedback has a mark for each letter: G for the right letter in the right place, Y for a letter that belongs "
    "elsewhere, _ for a letter that does not occur (again). check_word_validity says whether something counts as a "
    "word, and get_game_state what you know so far; neither costs a guess. A guess that is no word does cost one. Use "
    "what you learn: repeating a word, dropping a letter that stands right, or using one that is out costs points. "
    "Writing a message without a tool call gives up."
)


def _tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {key: {"type": "string", "description": text} for key, text in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


TOOLS = [
    _tool("submit_guess", "Guess the word. This uses a turn.", guess="The guess"),
    _tool("check_word_validity", "Whether something counts as a word. This uses no turn.", word="What to look up"),
    _tool("get_game_state", "The guesses so far and what they tell. This uses no turn."),
]


def make_row(target: str, word_length: int = WORD_LENGTH, max_turns: int = MAX_TURNS) -> dict[str, Any]:
    """The row of a game."""
    instructions = INSTRUCTIONS.format(length=word_length, turns=max_turns)
    messages = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": "The word is chosen. Make your first guess."},
    ]
    return {
        "responses_create_params": {"input": messages, "tools": TOOLS, "parallel_tool_calls": False},
        "custom_target": target,
        "word_length": word_length,
        "max_turns": max_turns,
    }


def split_targets(
    targets: Sequence[str], seed: int = SEED, validation_share: float = VALIDATION_SHARE
) -> tuple[list[str], list[str]]:
    """Targets for training and for validation, shuffled."""
    shuffled = list(targets)
    random.Random(seed).shuffle(shuffled)
    count = int(len(shuffled) * validation_share)
    return shuffled[count:], shuffled[:count]


def common_targets(guesses: Iterable[str]) -> list[str]:
    """The words to find: common ones, of those that count as words."""
    known = set(guesses)
    return [word for word in read_words(FOLDER / COMMON) if word in known]


def words_of(lines: Iterable[str], length: int = WORD_LENGTH) -> list[str]:
    """The words of a length among lines with a word each, sorted. PreparationError where there are none."""
    words = sorted({word for line in lines if len(word := line.strip().lower()) == length and word.isalpha()})
    if not words:
        raise PreparationError(f"The list has no words of {length} letters.")
    return words


def fetch_enable(url: str = ENABLE_URL) -> list[str]:
    """The lines of the published list. PreparationError where it can't be fetched."""
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=60) as answer:
            text: str = answer.read().decode("ascii")
    except (OSError, ValueError) as error:
        raise PreparationError(
            f"{url} can't be fetched ({error}): give a copy of the ENABLE word list with --words FILE."
        ) from error
    return text.splitlines()


def generate(words: Path | None = None, folder: Path = FOLDER) -> list[Path]:
    """Write `data/guesses.txt`, `data/train.jsonl` and `data/validation.jsonl` in `folder`, and return them."""
    try:
        lines = fetch_enable() if words is None else words.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PreparationError(f"{words} can't be read: {error.strerror}.") from error
    guesses = words_of(lines)
    targets = common_targets(guesses)
    guesses_path, data = folder / GUESSES, folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    guesses_path.write_text("".join(f"{word}\n" for word in guesses), encoding="utf-8")
    paths = [data / "train.jsonl", data / "validation.jsonl"]
    for path, part in zip(paths, split_targets(targets), strict=True):
        write_rows(path, map(make_row, part))
    return [guesses_path, *paths]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write Wordle's word list and rows.")
    parser.add_argument("--words", type=Path, default=None, help="a copy of the ENABLE list, instead of fetching it")
    options = parser.parse_args()
    try:
        for path in generate(options.words):
            print(f"Written: {path}")
    except GymError as error:
        parser.exit(error.exit_code, f"Error: {error}\n")


if __name__ == "__main__":
    main()
