"""Writes rows of RULER's synthetic subsets, for a split always the same ones: `python generate_data.py`.

The kinds of tasks are those of Hsieh et al. 2024, "RULER: What's the Real Context Size of Your Long-Context Language
Models?"; the texts are our own. The two of question answering need published data sets and are left out.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import run_preparation, write_rows

DATA = Path(__file__).parent / "data"
COUNT = 1100
WORDS = 2000
"""Of a prompt, about."""

_PEOPLE = ("A carpenter", "The ferryman", "My neighbour", "An old sailor", "The librarian", "A shepherd", "The baker")
_DEEDS = ("mends nets", "counts the swallows", "waits for rain", "sorts seeds", "reads by the stove", "paints a gate")
_TIMES = ("before sunrise", "in late autumn", "on market days", "when the bells ring", "after the thaw", "every winter")
_NOISE = "The road runs on. The fields are green. A bird calls twice, and all is still again."
_SYLLABLES = ("ba", "do", "fi", "gu", "ke", "li", "mo", "na", "pe", "ri", "su", "ta", "we", "zo")

Made = tuple[str, list[str]]
"""A prompt and its references."""


def prepare(split: str = "train", output: Path | None = None, limit: int | None = None) -> Path:
    """Write one split and return the file."""
    path = output or DATA / f"{split}.jsonl"
    write_rows(path, rows(split, COUNT if limit is None else limit))
    return path


def rows(split: str, count: int, words: int = WORDS) -> Iterator[dict[str, Any]]:
    """So many rows, of each kind in turn, with prompts of about so many words."""
    chance = random.Random(f"ruler {split}")
    subsets = list(KINDS)
    for number in range(count):
        subset = subsets[number % len(subsets)]
        prompt, outputs = KINDS[subset](chance, words)
        yield row(subset, prompt, outputs)


def row(subset: str, prompt: str, outputs: Sequence[str]) -> dict[str, Any]:
    """`length` is that of the prompt in words."""
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "outputs": list(outputs),
        "length": len(prompt.split()),
        "subset": subset,
    }


def needles(
    *, noise: str = "story", keys: int = 1, values: int = 1, asked: int = 1, codes: str = "number", names: str = "word"
) -> Callable[[random.Random, int], Made]:
    """Statements hidden in noise: so many keys with so many values each, some of the keys asked for."""

    def make(chance: random.Random, words: int) -> Made:
        count = max(keys, words // 12) if noise == "needles" else keys
        secrets = {_name(chance, names): [_code(chance, codes) for _ in range(values)] for _ in range(count)}
        wanted = chance.sample(list(secrets), asked)
        said = [f"The secret code of {key} is {value}." for key, own in secrets.items() for value in own]
        chance.shuffle(said)
        text = " ".join(said if noise == "needles" else _hidden(chance, said, _sentences(chance, noise, words)))
        question = f"Which are all the secret codes of {' and of '.join(wanted)}? Give the codes and nothing else."
        outputs = [value for key in wanted for value in secrets[key]]
        return f"Remember the secret codes in this text.\n\n{text}\n\n{question}", outputs

    return make


def variables(chance: random.Random, words: int) -> Made:
    """A chain of variables that get each other's value, among other chains."""
    chains = [[_letters(chance) for _ in range(5)] for _ in range(2)]
    numbers = chance.sample(range(10_000, 99_999), 2)
    said: list[str] = []
    for chain, number in zip(chains, numbers, strict=True):
        first, *rest = chain
        said += [f"VAR {first} = {number}"]
        said += [f"VAR {name} = VAR {source}" for source, name in zip(chain, rest, strict=False)]
    text = "\n".join(_hidden(chance, said, _sentences(chance, "road", words), in_order=True))
    question = f"Which variables have the value {numbers[0]} in the end? Give the names of all five and nothing else."
    return f"Follow the variables in this text.\n\n{text}\n\n{question}", chains[0]


def common_words(chance: random.Random, words: int) -> Made:
    """A numbered list in which ten words stand far more often than the others."""
    often = max(4, words // 100)
    known = _names(chance, 10 + words // 6)
    common, rare = known[:10], known[10:]
    listed = common * often + rare * 2
    chance.shuffle(listed)
    text = " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1))
    question = "Which ten words stand in the list most often? Give them and nothing else."
    return f"Read this numbered list of words.\n\n{text}\n\n{question}", common


def frequent_words(chance: random.Random, words: int) -> Made:
    """Coded words whose number falls with their rank; the three most frequent are asked for."""
    known = _names(chance, 30)
    listed = [word for rank, word in enumerate(known, 1) for _ in range(max(1, round(words / 2 / rank**1.5)))]
    chance.shuffle(listed)
    first = [word for word, _ in Counter(listed).most_common(3)]
    question = "Which three coded words stand in the text most often? Give them and nothing else."
    return f"Read this text of coded words.\n\n{' '.join(listed)}\n\n{question}", first


def _hidden(chance: random.Random, said: list[str], around: list[str], *, in_order: bool = False) -> list[str]:
    """Sentences with others between them, at places of chance."""
    places = [chance.randint(0, len(around)) for _ in said]
    found: defaultdict[int, list[str]] = defaultdict(list)
    for place, text in zip(sorted(places) if in_order else places, said, strict=True):
        found[place].append(text)
    return [text for place in range(len(around) + 1) for text in (*found[place], *around[place : place + 1])]


def _sentences(chance: random.Random, noise: str, words: int) -> list[str]:
    if noise == "road":
        return [_NOISE] * max(1, words // len(_NOISE.split()))
    count = max(1, words // 7)
    return [f"{chance.choice(_PEOPLE)} {chance.choice(_DEEDS)} {chance.choice(_TIMES)}." for _ in range(count)]


def _name(chance: random.Random, kind: str) -> str:
    return _code(chance, "uuid") if kind == "uuid" else "-".join(_names(chance, 2))


def _names(chance: random.Random, count: int) -> list[str]:
    """Different words of one length, so that none is part of another."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(chance.choices(_SYLLABLES, k=4))] = None
    return list(found)


def _code(chance: random.Random, kind: str) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128))) if kind == "uuid" else str(chance.randint(1_000_000, 9_999_999))


def _letters(chance: random.Random) -> str:
    return "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=5))


KINDS: dict[str, Callable[[random.Random, int], Made]] = {
    "niah_single_1": needles(noise="road"),
    "niah_single_2": needles(),
    "niah_single_3": needles(codes="uuid"),
    "niah_multikey_1": needles(keys=4),
    "niah_multikey_2": needles(noise="needles"),
    "niah_multikey_3": needles(noise="needles", names="uuid", codes="uuid"),
    "niah_multivalue": needles(values=4),
    "niah_multiquery": needles(keys=4, asked=4),
    "vt": variables,
    "cwe": common_words,
    "fwe": frequent_words,
}

if __name__ == "__main__":
    run_preparation(prepare, description="Write tasks with long texts.", splits=("train", "validation"))
