"""The words that count as words: the fetched list, else the small one that comes with the environment."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
GUESSES = "data/guesses.txt"
COMMON = "words/common.txt"


def read_words(path: Path | str) -> list[str]:
    """The words of a file with one a line, in lower case; lines that begin with # are comments.

    Raises FileNotFoundError, which names the script that writes the file.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no word list {Path(path).name}: resources_servers/wordle/generate_data.py writes it."
        ) from None
    words = (line.strip().lower() for line in lines if not line.startswith("#"))
    return [word for word in words if word]


def known_words(word_list: str | None = None) -> list[str]:
    """The words of `word_list`, a path in this folder; without one those of the best list there is."""
    if word_list is None:
        word_list = GUESSES if (FOLDER / GUESSES).is_file() else COMMON
    return read_words(FOLDER / word_list)
