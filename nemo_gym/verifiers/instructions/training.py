"""The instructions of IFTrain (https://arxiv.org/abs/2507.02833): those of IFEval and 29 more."""

from __future__ import annotations

import re
from itertools import pairwise

from nemo_gym.verifiers.instructions.ifeval import IFEVAL, has_letter_often, occurrences, parts
from nemo_gym.verifiers.instructions.language import sentences, tokens
from nemo_gym.verifiers.instructions.registry import Instructions, compared

TRAINING = Instructions(IFEVAL)

_DIVIDER = re.compile(r"\s?\*\*\*\s?")


TRAINING["letters:letter_counting2"] = has_letter_often


@TRAINING.named("copy:copy", "copy:copying_simple")
def copies(text: str, prompt_to_repeat: str) -> bool:
    return same(text, prompt_to_repeat)


@TRAINING.named("copy:copying_multiple")
def copies_often(text: str, prompt_to_repeat: str, N: int) -> bool:
    copies = text.split("******")
    return len(copies) == N and all(same(copy, prompt_to_repeat) for copy in copies)


@TRAINING.named("copy:repeat_phrase")
def varies_phrase(text: str, phrase: str, small_n: int) -> bool:
    """The phrase comes so many times, each time with another word for one of it."""
    wanted = phrase.split()
    found = _from_word_to_word(text, wanted[0], wanted[-1])
    return len(found) == small_n and all(_differing(each.split(), wanted) == 1 for each in found)


@TRAINING.named("new:copy_span_idx")
def copies_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    return same(text, prompt_to_repeat[int(n_start) : int(n_end)])


@TRAINING.named("detectable_format:sentence_hyphens")
def joins_sentences(text: str) -> bool:
    pieces = text.split("-")
    return all(
        piece == sentence and piece == piece.strip()
        for piece, sentence in zip(pieces, sentences(text.replace("-", " ")), strict=False)
    )


@TRAINING.named("detectable_format:square_brackets")
def brackets_words(text: str) -> bool:
    return all(word.startswith("[") and word.endswith("]") for word in text.split())


@TRAINING.named("detectable_format:bigram_wrapping")
def wraps_pairs(text: str) -> bool:
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


@TRAINING.named("keywords:no_adjacent_consecutive")
def skips_letters(text: str) -> bool:
    """No word begins with the letter after that of the word before."""
    letters = [word[0].lower() for word in text.split()]
    if any(len(letter) != 1 for letter in letters):
        return len(letters) < 2
    return all(ord(second) - ord(first) != 1 for first, second in pairwise(letters))


@TRAINING.named("keywords:word_once")
def has_keyword_once(text: str, keyword: str) -> bool:
    return occurrences(keyword, text) == 1


@TRAINING.named("keywords:word_count_different_numbers")
def has_keyword_often(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return compared(occurrences(keyword, text), relation, frequency)


@TRAINING.named("keywords:exclude_word_harder")
def lacks_word(text: str, keyword: str) -> bool:
    return f" {keyword.strip()} " not in text


@TRAINING.named("keywords:palindrome")
def has_palindrome(text: str) -> bool:
    return any(word == word[::-1] for word in text.split())


@TRAINING.named("keywords:keyword_specific_position")
def has_keyword_there(text: str, keyword: str, n: int, m: int) -> bool:
    """The keyword is the m-th word, marks counted, of the n-th sentence."""
    found = sentences(text)
    words = tokens(found[_place(n)]) if _place(n) < len(found) else []
    return _place(m) < len(words) and words[_place(m)] == _word(keyword)


@TRAINING.named("keywords:start_end")
def begins_as_it_ends(text: str) -> bool:
    words = tokens(text)
    return len(words) > 1 and words[0].lower() == words[-1].lower()


@TRAINING.named("paragraphs:paragraphs")
def has_two_divided_paragraphs(text: str) -> bool:
    return parts(_DIVIDER.split(text)) == 2


@TRAINING.named("paragraphs:paragraphs2")
def has_two_paragraphs(text: str) -> bool:
    return parts(text.split("\n\n")) == 2


@TRAINING.named("first_word:first_word_sent")
def begins_sentences_with(text: str, first_word: str) -> bool:
    return all(sentence.split()[0].lower() == _word(first_word).lower() for sentence in sentences(text))


@TRAINING.named("first_word:first_word_answer")
def begins_with(text: str, first_word: str) -> bool:
    return [word.lower() for word in text.split()[:1]] == [_word(first_word).lower()]


@TRAINING.named("last_word:last_word_sent")
def ends_sentences_with(text: str, last_word: str) -> bool:
    return all(_without_marks(sentence.split()[-1]) == _word(last_word).lower() for sentence in sentences(text))


@TRAINING.named("last_word:last_word_answer")
def ends_with_word(text: str, last_word: str) -> bool:
    return [_without_marks(word) for word in text.split()[-1:]] == [_word(last_word).lower()]


@TRAINING.named("punctuation:punctuation_dot")
def lacks_dots(text: str) -> bool:
    return "." not in text


@TRAINING.named("punctuation:punctuation_exclamation")
def lacks_exclamation_marks(text: str) -> bool:
    return "!" not in text


@TRAINING.named("count:lowercase_counting")
def has_few_small_words(text: str, N: int) -> bool:
    return len(re.findall(r"\b[a-z]+\b", text)) <= N


@TRAINING.named("letters:letter_counting")
def has_letters(text: str, N: int, relation: str) -> bool:
    return compared(len(re.findall(r"[a-zA-Z]", text)), relation, N)


@TRAINING.named("count:counting_composition")
def is_composed(text: str, n_sent: int, n_words: int) -> bool:
    """Three divided paragraphs of so many sentences of so many words, marks counted."""
    paragraphs = _DIVIDER.split(text)
    return parts(paragraphs) == len(paragraphs) == 3 and all(
        len(found := sentences(paragraph)) == n_sent and all(len(tokens(each)) == n_words for each in found)
        for paragraph in paragraphs
    )


@TRAINING.named("count:count_unique")
def repeats_nothing(text: str) -> bool:
    found = tokens(text)
    return len(found) == len(set(found))


@TRAINING.named("count:count_increment_word")
def has_keywords_once_and_twice(text: str, keyword1: str, keyword2: str) -> bool:
    return occurrences(keyword1, text) == 1 and occurrences(keyword2, text) == 2


def same(text: str, wanted: str) -> bool:
    """Whether two texts are the same but for case and space around them."""
    return text.strip().lower() == wanted.strip().lower()


def _from_word_to_word(text: str, first: str, last: str) -> list[str]:
    """The shortest passages of a line that begin and end so, from the left, with none in another."""
    found = []
    for line in text.split("\n"):
        end = 0
        while (begin := line.find(f"{first} ", end)) >= 0:
            place = line.find(f" {last}", begin + len(first) + 1)
            if place < 0:
                break
            end = place + 1 + len(last)
            found.append(line[begin:end])
    return found


def _differing(words: list[str], wanted: list[str]) -> int:
    if len(words) > len(wanted):
        return len(words)
    return sum(1 for word, each in zip(words, wanted, strict=False) if word != each)


def _without_marks(word: str) -> str:
    return re.sub(r"[^\w\s]", "", word).lower()


def _word(value: str | list[str]) -> str:
    """Rows have a word, or a list with one."""
    return (value if isinstance(value, str) else value[0]).strip()


def _place(number: int) -> int:
    if number < 1:
        raise ValueError("sentences and words are counted from 1")
    return int(number) - 1
