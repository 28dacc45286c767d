"""Instructions on how many there are of something, and in which ratio: `count:` and `ratio:`."""

from __future__ import annotations

import re

from nemo_gym.verifiers.instructions import vocabulary
from nemo_gym.verifiers.instructions.language import (
    EDGES,
    WITHOUT_PUNCTUATION,
    bare_words,
    is_japanese,
    sentences,
    tokens,
    words,
)
from nemo_gym.verifiers.instructions.registry import Instructions

COUNTS = Instructions()

_CONJUNCTIONS, _NAMES, _PRONOUNS, _STOP_WORDS = map(
    frozenset, (vocabulary.CONJUNCTIONS, vocabulary.PERSON_NAMES, vocabulary.PRONOUNS, vocabulary.STOP_WORDS)
)
_MARKS = frozenset(".,!?;:")


@COUNTS.named("count:word_count_range")
def has_words_between(text: str, min_words: int, max_words: int) -> bool:
    return min_words <= len(words(text)) <= max_words


@COUNTS.named("count:unique_word_count")
def has_different_words(text: str, N: int) -> bool:
    return len({word.strip(EDGES) for word in text.lower().split()}) >= N


@COUNTS.named("count:conjunctions")
def has_conjunctions(text: str, small_n: int) -> bool:
    """So many different ones, with the marks and capitals they are written with."""
    return len({word for word in text.split() if word.strip(EDGES).lower() in _CONJUNCTIONS}) >= small_n


@COUNTS.named("count:person_names")
def has_names(text: str, N: int) -> bool:
    return len({*words(text)}.intersection(_NAMES)) >= N


@COUNTS.named("count:numbers")
def has_numbers(text: str, N: int) -> bool:
    return len(re.findall(r"\d+", text.translate(WITHOUT_PUNCTUATION))) == N


@COUNTS.named("count:punctuation")
def has_all_marks(text: str) -> bool:
    """Every mark of punctuation, those of an interrobang not counted twice."""
    rest = next((text.replace(mark, "", 1) for mark in ("?!", "!?") if mark in text), text)
    return (rest != text or "\u203d" in text) and set(rest) >= _MARKS


@COUNTS.named("count:words_japanese")
def has_japanese_words(text: str, N: int) -> bool:
    """Every N-th word, but for numbers."""
    every = [word.strip(EDGES) for word in text.split()[int(N) - 1 :: int(N)]]
    return all(not word or word.isdigit() or is_japanese(word) for word in every)


@COUNTS.named("count:pronouns")
def has_pronouns(text: str, N: int) -> bool:
    return sum(1 for token in tokens(text.lower().replace("/", " ")) if token in _PRONOUNS) >= N


@COUNTS.named("count:keywords_multiple")
def has_each_keyword_often(
    text: str, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str
) -> bool:
    keywords = (keyword1, keyword2, keyword3, keyword4, keyword5)
    return all(
        len(re.findall(rf"\b{re.escape(keyword.strip())}\b", text, re.IGNORECASE)) == count
        for keyword, count in zip(keywords, (1, 2, 3, 5, 7), strict=True)
    )


@COUNTS.named("ratio:stop_words")
def has_few_stop_words(text: str, percentage: float) -> bool:
    found = words(text)
    stop_words = sum(1 for word in found if word.lower() in _STOP_WORDS)
    return bool(found) and stop_words / len(found) * 100 <= percentage


@COUNTS.named("ratio:sentence_type")
def has_half_as_many_questions(text: str) -> bool:
    ends = _sentence_ends(text)
    return ends.count(".") == 2 * ends.count("?")


@COUNTS.named("ratio:sentence_balance")
def has_as_many_of_each_sentence(text: str) -> bool:
    ends = _sentence_ends(text)
    return ends.count(".") == ends.count("?") == ends.count("!")


@COUNTS.named("ratio:overlap")
def shares_trigrams(text: str, reference_text: str, percentage: float) -> bool:
    """Within two percent."""
    own, others = _trigrams(text), _trigrams(reference_text)
    return bool(own) and percentage - 2 <= len(own & others) / len(own) * 100 <= percentage + 2


@COUNTS.named("ratio:sentence_words")
def has_three_sentences_of_one_length(text: str) -> bool:
    """With as many characters, and no word twice."""
    found = sentences(text)
    all_words = bare_words(" ".join(found))
    return len(found) == 3 and len({len(each) for each in found}) == 1 and len(all_words) == len(set(all_words))


def _sentence_ends(text: str) -> list[str]:
    return [sentence[-1] for sentence in sentences(text)]


def _trigrams(text: str) -> set[tuple[str, ...]]:
    found = tokens(text)
    return set(zip(found, found[1:], found[2:], strict=False))
