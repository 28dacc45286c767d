"""Words and sentences, as the checks of instructions count them.

Sentences and tokens are NLTK's where NLTK and its data `punkt_tab` are installed, else those of the rules below, which
agree with it on plain prose. Nothing is downloaded.
"""

from __future__ import annotations

import importlib
import re
import string
from collections.abc import Callable
from functools import cache
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.verifiers.instructions import vocabulary

WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
EDGES = string.punctuation + " "

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<![.?!])[.?!]++(?:[\"')\]}\u201d\u2019]*+\s++|(?=[*:;@({\[]))")
_ABBREVIATIONS, _OPENERS = frozenset(vocabulary.ABBREVIATIONS), frozenset(vocabulary.OPENERS)
_NO_NAMES = _OPENERS.union(vocabulary.NO_NAMES)
_LONGEST_ABBREVIATION = 32
_TOKEN = re.compile(
    r"""\.{2,}|--|n't\b|'(?:s|m|d|ll|re|ve)\b|'(?=\w)|can(?=not\b)|gon(?=na\b)|wan(?=na\b)|got(?=ta\b)|"""
    r"""(?:gim|lem)(?=me\b)|"""
    r"""(?:(?!'(?:s|m|d|ll|re|ve)\b|'(?!\w)|n't\b|--|\.\.)[^\s,:;@\#$%&?!"()\[\]{}<>*\u201c\u201d\u2018\u2019]|"""
    r"""[,:](?=\d))+|\S""",
    re.IGNORECASE,
)
_CLOSERS = frozenset("\"')]}>\u201d\u2019")


class MissingLibraryError(GymError):
    """A check needs a library, or its data, that isn't installed."""


def words(text: str) -> list[str]:
    """The runs of letters, digits and underscores."""
    return _WORD.findall(text)


def bare_words(text: str) -> list[str]:
    """What stands between spaces, in lower case and without ASCII punctuation; what is nothing else is left out."""
    return text.lower().translate(WITHOUT_PUNCTUATION).split()


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the space between them."""
    split = _nltk_function("sent_tokenize")
    return split(text) if split else plain_sentences(text)


def tokens(text: str) -> list[str]:
    """The words and the punctuation marks of a text, as treebanks part them (`do`, `n't`)."""
    split = _nltk_function("word_tokenize")
    return split(text) if split else plain_tokens(text)


def plain_sentences(text: str) -> list[str]:
    """A sentence ends with a dot, a question or an exclamation mark before space; not after most abbreviations,
    initials and numbers, nor after dots where small letters follow."""
    found, begin = [], 0
    for end in _SENTENCE_END.finditer(text):
        marks = text[end.start() : end.end()].rstrip()
        place = end.start() + len(marks.rstrip("\"')]}\u201d\u2019"))
        if _is_end(text, begin, place, end.end()):
            found.append(text[begin : end.end()].strip())
            begin = end.end()
    found.append(text[begin:].strip())
    return [sentence for sentence in found if sentence]


def plain_tokens(text: str) -> list[str]:
    """Tokens by rules: clitics, numbers and abbreviations stay together, a dot that ends a sentence stands alone."""
    return [token for sentence in plain_sentences(text) for token in _sentence_tokens(sentence)]


def is_japanese(text: str) -> bool:
    """Whether there is a kana or a common kanji in it."""
    return any("\u3040" <= character <= "\u30ff" or "\u4e00" <= character <= "\u9fff" for character in text)


def language_of(text: str) -> str | None:
    """The code of the language that a text is most likely in; None for a text without letters to go by.

    The same for the same text, always. Raises MissingLibraryError without the package `langdetect`.
    """
    langdetect = _library("langdetect")
    langdetect.DetectorFactory.seed = 0
    try:
        code: str = langdetect.detect(text)
    except langdetect.LangDetectException:
        return None
    return code


def is_emoji(character: str) -> bool:
    """Raises MissingLibraryError without the package `emoji`."""
    return bool(_library("emoji").is_emoji(character))


def syllables(word: str) -> int:
    """How many syllables an English word has. Raises MissingLibraryError without the package `syllapy`."""
    return int(_library("syllapy").count(word))


def is_verb_first(text: str) -> bool:
    """Whether the first token is a verb. Raises MissingLibraryError without NLTK and its tagger."""
    nltk = _library("nltk")
    try:
        tagged = nltk.pos_tag(tokens(text))
    except LookupError as error:
        data = "averaged_perceptron_tagger_eng"
        raise MissingLibraryError(f"Telling verbs needs data: run `python -m nltk.downloader {data}`.") from error
    return bool(tagged) and "VB" in tagged[0][1]


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(f"An instruction needs the package `{name}`: install it.") from error


def _is_end(text: str, begin: int, place: int, follows: int) -> bool:
    """Whether the marks before `place` end a sentence; what comes after begins at `follows`."""
    if follows >= len(text) or text[place - 1] in "?!":
        return True
    start = max(begin, place - _LONGEST_ABBREVIATION)
    last = (text[start:place].split() or [""])[-1].lstrip("\"'([{*_\u201c\u2018")
    following = _WORD.match(text, follows, follows + _LONGEST_ABBREVIATION)
    first = following[0] if following else ""
    stem = last[:-1].lower()
    if stem.isdigit():
        return not first[:1].islower()
    if len(stem) == 1 and stem.isalpha():
        return first[:1].isupper() and first.lower() in _NO_NAMES
    if last.endswith("..") or stem in _ABBREVIATIONS:
        return first[:1].isupper() and first.lower() in _OPENERS
    return True


def _sentence_tokens(sentence: str) -> list[str]:
    found = _TOKEN.findall(sentence)
    last = next((place for place in range(len(found) - 1, -1, -1) if found[place] not in _CLOSERS), None)
    if last is not None and len(found[last]) > 1 and found[last].endswith(".") and not found[last].endswith(".."):
        found[last : last + 1] = [found[last][:-1], "."]
    return found


@cache
def _nltk_function(name: str) -> Callable[[str], list[str]] | None:
    """A function of NLTK, if it works here."""
    try:
        function: Callable[[str], list[str]] = getattr(importlib.import_module("nltk"), name)
        function("One. Two.")
    except Exception:
        return None
    return function
