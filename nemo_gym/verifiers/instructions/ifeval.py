"""The 25 instructions of IFEval (https://arxiv.org/abs/2311.07911, and its reference implementation).

Where that draws a number or a word at random because the row has none, the row is refused here. Keywords are regular
expressions, as there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from nemo_gym.verifiers.instructions.language import language_of, sentences, tokens, words
from nemo_gym.verifiers.instructions.registry import Instructions, compared

IFEVAL = Instructions()

_LIMITED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_FIRST_WORD_ENDS = re.compile(r"[.,?!'\"]")
_FENCE = re.compile(r"```(?:json|Json|JSON)?")


@IFEVAL.named("keywords:existence")
def has_keywords(text: str, keywords: Sequence[str]) -> bool:
    return all(re.search(keyword, text, re.IGNORECASE) for keyword in _listed(keywords))


@IFEVAL.named("keywords:frequency")
def has_keyword_often(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return compared(occurrences(keyword, text), relation, frequency)


@IFEVAL.named("keywords:forbidden_words")
def lacks_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in _listed(forbidden_words))


@IFEVAL.named("keywords:letter_frequency")
def has_letter_often(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    if len(letter.strip()) != 1:
        raise ValueError(f"{letter!r} is no letter")
    return compared(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


@IFEVAL.named("language:response_language")
def is_in_language(text: str, language: str) -> bool:
    """A text without letters counts as any language."""
    return language_of(text) in (language, None)


@IFEVAL.named("length_constraints:number_sentences")
def has_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return compared(len(sentences(text)), relation, num_sentences)


@IFEVAL.named("length_constraints:number_paragraphs")
def has_paragraphs(text: str, num_paragraphs: int) -> bool:
    return parts(_DIVIDER.split(text)) == num_paragraphs


@IFEVAL.named("length_constraints:number_words")
def has_words(text: str, num_words: int, relation: str) -> bool:
    return compared(len(words(text)), relation, num_words)


@IFEVAL.named("length_constraints:nth_paragraph_first_word")
def begins_paragraph_with(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = text.split("\n\n")
    count = sum(1 for paragraph in paragraphs if paragraph.strip())
    place = int(nth_paragraph)
    if place < 1:
        raise ValueError("paragraphs are counted from 1")
    if place > count or not (paragraph := paragraphs[place - 1].strip()):
        return False
    first = paragraph.split()[0].lstrip("'").lstrip('"')
    first = _FIRST_WORD_ENDS.split(first, maxsplit=1)[0]
    return count == num_paragraphs and first.lower() == first_word.lower()


@IFEVAL.named("detectable_content:number_placeholders")
def has_placeholders(text: str, num_placeholders: int) -> bool:
    return sum(_bracketed(line) for line in text.split("\n")) >= num_placeholders


@IFEVAL.named("detectable_content:postscript")
def has_postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(patterns.get(marker, marker.lower()), text.lower()) is not None


@IFEVAL.named("detectable_format:number_bullet_lists")
def has_bullets(text: str, num_bullets: int) -> bool:
    stars = re.findall(r"^[^\S\n]*\*[^*].*$", text, re.MULTILINE)
    dashes = re.findall(r"^[^\S\n]*-.*$", text, re.MULTILINE)
    return len(stars) + len(dashes) == num_bullets


@IFEVAL.named("detectable_format:constrained_response")
def has_limited_answer(text: str) -> bool:
    return any(answer in text for answer in _LIMITED_ANSWERS)


@IFEVAL.named("detectable_format:number_highlighted_sections")
def has_highlights(text: str, num_highlights: int) -> bool:
    slim = [match for match in re.findall(r"\*[^\n*]*\*", text) if match.strip("*").strip()]
    bold = [match for match in re.findall(r"\*\*[^\n*]*\*\*", text) if match[2:-2].strip()]
    return len(slim) + len(bold) >= num_highlights


@IFEVAL.named("detectable_format:multiple_sections")
def has_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"{section_spliter.strip()}\s?\d+", text)) >= num_sections


@IFEVAL.named("detectable_format:json_format")
def is_json(text: str) -> bool:
    text = text.strip()
    if fence := _FENCE.match(text):
        text = text[fence.end() :]
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@IFEVAL.named("detectable_format:title")
def has_title(text: str) -> bool:
    return any(title.strip("<>").strip() for line in text.split("\n") for title in _titles(line))


@IFEVAL.named("combination:two_responses")
def has_two_responses(text: str) -> bool:
    responses = text.split("******")
    given = [response.strip() for response in responses if response.strip()]
    return parts(responses) == 2 and len(given) == 2 and given[0] != given[1]


@IFEVAL.named("combination:repeat_prompt")
def repeats_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@IFEVAL.named("startend:end_checker")
def ends_with(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@IFEVAL.named("startend:quotation")
def is_quoted(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@IFEVAL.named("change_case:capital_word_frequency")
def has_capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    return compared(sum(1 for token in tokens(text) if token.isupper()), capital_relation, capital_frequency)


@IFEVAL.named("change_case:english_capital")
def is_english_in_capitals(text: str) -> bool:
    return text.isupper() and language_of(text) in ("en", None)


@IFEVAL.named("change_case:english_lowercase")
def is_english_in_small_letters(text: str) -> bool:
    return text.islower() and language_of(text) in ("en", None)


@IFEVAL.named("punctuation:no_comma")
def lacks_commas(text: str) -> bool:
    return "," not in text


def occurrences(pattern: str, text: str) -> int:
    """How often a regular expression is found, in any case."""
    return len(re.findall(pattern.strip(), text, re.IGNORECASE))


def parts(pieces: Sequence[str]) -> int | None:
    """How many pieces there are, a blank first and last one not counted; None with a blank one between others."""
    last = len(pieces) - 1
    blank = [place for place, piece in enumerate(pieces) if not piece.strip()]
    return None if any(place not in (0, last) for place in blank) else len(pieces) - len(blank)


def _listed(keywords: Sequence[str]) -> Sequence[str]:
    if isinstance(keywords, str):
        raise TypeError("a list of words is needed")
    return keywords


def _bracketed(line: str) -> int:
    """How many `[…]` there are, one after the other."""
    count = end = 0
    while (begin := line.find("[", end)) >= 0 and (end := line.find("]", begin)) >= 0:
        count += 1
    return count


def _titles(line: str) -> list[str]:
    begin, end = line.find("<<"), line.rfind(">>")
    return [line[begin:end]] if 0 <= begin < end else []
