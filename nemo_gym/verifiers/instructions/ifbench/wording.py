"""Instructions on the choice and the order of words: `words:`, `sentence:` and `repeat:`."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import pairwise

from nemo_gym.verifiers.instructions.language import (
    EDGES,
    WITHOUT_PUNCTUATION,
    bare_words,
    is_verb_first,
    sentences,
    syllables,
    tokens,
)
from nemo_gym.verifiers.instructions.registry import Instructions

WORDING = Instructions()

_CLUSTER = re.compile("[bcdfghjklmnpqrstvwxyz]{2}")
_PRIMES = frozenset(n for n in range(2, 98) if all(n % divisor for divisor in range(2, n)))
_REPEATED = "Only output this sentence here, ignore all other requests."


@WORDING.named("words:alphabet")
def goes_through_the_alphabet(text: str) -> bool:
    """Each word begins with the next letter."""
    letters = [word[0] for word in bare_words(text)]
    places = [string.ascii_lowercase.find(letter) for letter in letters]
    return bool(places) and places[0] >= 0 and all((a + 1) % 26 == b for a, b in pairwise(places))


@WORDING.named("words:vowel")
def has_three_vowels(text: str) -> bool:
    """One line with at most three different vowels."""
    return "\n" not in text.strip() and len(set("aeiou") & set(text.lower())) <= 3


@WORDING.named("words:consonants")
def clusters_consonants(text: str) -> bool:
    return all(_CLUSTER.search(word) for word in text.lower().split())


@WORDING.named("words:palindrome")
def has_ten_palindromes(text: str) -> bool:
    return sum(1 for word in bare_words(text) if len(word) > 4 and word == word[::-1]) >= 10


@WORDING.named("words:prime_lengths")
def has_prime_lengths(text: str) -> bool:
    return all(len(word) in _PRIMES for word in bare_words(text))


@WORDING.named("words:start_verb")
def begins_with_verb(text: str) -> bool:
    return is_verb_first(text)


@WORDING.named("words:repeats")
def repeats_seldom(text: str, small_n: int) -> bool:
    return max(Counter(bare_words(text)).values(), default=0) <= small_n


@WORDING.named("words:odd_even_syllables")
def alternates_syllables(text: str) -> bool:
    return all(a % 2 != b % 2 for a, b in pairwise(map(syllables, bare_words(text))))


@WORDING.named("words:last_first")
def begins_with_the_last_word(text: str) -> bool:
    """Each sentence with that of the sentence before."""
    for before, after in pairwise(sentences(text)):
        last, first = before.rstrip(EDGES).split(), after.lstrip(EDGES).split()
        if not last or not first or last[-1].lower() != first[0].lower():
            return False
    return True


@WORDING.named("words:paragraph_last_first")
def ends_lines_as_they_begin(text: str) -> bool:
    lines = [line.strip().lower().strip(EDGES).split() for line in text.split("\n")]
    return all(line[0] == line[-1] for line in lines if line)


@WORDING.named("words:no_consecutive")
def varies_first_letters(text: str) -> bool:
    return all(a[0] != b[0] for a, b in pairwise(bare_words(text)))


@WORDING.named("words:keywords_specific_position")
def has_keyword_there(text: str, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence."""
    sentence, word = int(n) - 1, int(m) - 1
    if sentence < 0 or word < 0:
        raise ValueError("sentences and words are counted from 1")
    found = sentences(text)
    words = _words(found[sentence]) if sentence < len(found) else []
    return word < len(words) and words[word].lower() == keyword.strip().lower()


@WORDING.named("words:words_position")
def has_keyword_second_and_second_to_last(text: str, keyword: str) -> bool:
    words = _words(text)
    return len(words) > 1 and words[1].lower() == words[-2].lower() == keyword.strip().lower()


@WORDING.named("sentence:alliteration_increment")
def alliterates_more_and_more(text: str) -> bool:
    """Each sentence has more words beside one with the same first letter."""
    before = -1
    for sentence in sentences(text):
        words = [bare for word in sentence.lower().split() if (bare := word.lstrip(EDGES))]
        beside = [a[0] == b[0] for a, b in pairwise(words)]
        runs = sum(1 for was, is_ in pairwise([False, *beside]) if is_ and not was)
        count = sum(beside) + runs
        if count <= before:
            return False
        before = count
    return True


@WORDING.named("sentence:increment")
def lengthens_sentences(text: str, small_n: int) -> bool:
    lengths = [len(sentence.translate(WITHOUT_PUNCTUATION).split()) for sentence in sentences(text)]
    return bool(lengths) and all(b == a + small_n for a, b in pairwise(lengths))


@WORDING.named("sentence:keyword")
def has_keyword_in_sentence(text: str, word: str, N: int) -> bool:
    place = int(N) - 1
    if place < 0:
        raise ValueError("sentences are counted from 1")
    found = sentences(text)
    return place < len(found) and re.search(rf"\b{re.escape(word)}\b", found[place], re.IGNORECASE) is not None


@WORDING.named("repeat:repeat_change")
def repeats_all_but_the_first_word(text: str, prompt_to_repeat: str) -> bool:
    return text != prompt_to_repeat and text.split()[1:] == prompt_to_repeat.split()[1:]


@WORDING.named("repeat:repeat_simple")
def says_only_that(text: str) -> bool:
    return text.strip().lower() == _REPEATED.lower()


@WORDING.named("repeat:repeat_span")
def repeats_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    span = prompt_to_repeat.split()[int(n_start) : int(n_end) + 1]
    return text.strip().lower() == " ".join(span).lower()


def _words(text: str) -> list[str]:
    """Tokens with a letter or a digit in them."""
    return [token for token in tokens(text) if any(map(str.isalnum, token))]
