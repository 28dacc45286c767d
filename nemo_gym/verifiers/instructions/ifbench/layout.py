"""Instructions on how a text looks: `format:`."""

from __future__ import annotations

import re
import string
from itertools import pairwise

from nemo_gym.verifiers.instructions.language import EDGES, WITHOUT_PUNCTUATION, is_emoji, sentences, tokens
from nemo_gym.verifiers.instructions.registry import Instructions

LAYOUT = Instructions()

_BUT_QUOTES = string.digits + string.punctuation.replace('"', "")
_CLOSING = {")": "(", "]": "[", "}": "{"}
_LETTERED_OPTIONS = re.compile(r"\W*a\W*b\W*c\W*", re.IGNORECASE)
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")


@LAYOUT.named("format:parentheses")
def nests_brackets(text: str) -> bool:
    """Five deep, the innermost closed rightly."""
    opened: list[str] = []
    deepest = 0
    for character in text:
        if character in "([{":
            opened.append(character)
            deepest = max(deepest, len(opened))
        elif character in _CLOSING:
            if not opened or opened.pop() != _CLOSING[character]:
                opened, deepest = [], 0
            elif deepest >= 5:
                return True
    return False


@LAYOUT.named("format:quotes")
def nests_quotes(text: str) -> bool:
    """Three deep, double and single ones in turns."""
    opened: list[str] = []
    deepest = 0
    for character in text:
        if opened and character == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif character in "\"'":
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


@LAYOUT.named("format:options")
def is_an_option(text: str, options: str) -> bool:
    separator = next((each for each in ("/", "or") if each in options), ",")
    allowed = [option.strip() for option in options.split(separator)]
    if _LETTERED_OPTIONS.match(options):
        return text in allowed
    return text.strip(EDGES).lower() in [option.strip(EDGES).lower() for option in allowed]


@LAYOUT.named("format:newline")
def has_one_word_a_line(text: str) -> bool:
    bare = text.translate(WITHOUT_PUNCTUATION).strip()
    return sum(1 for line in bare.split("\n") if line) == len(bare.split())


@LAYOUT.named("format:emoji")
def ends_sentences_with_emoji(text: str) -> bool:
    """An emoji may also stand where the next sentence seems to begin."""
    bare = [sentence.translate(WITHOUT_PUNCTUATION).strip() for sentence in sentences(text)]
    ends = [(this[-2:], after[:1]) for this, after in zip(bare, [*bare[1:], ""], strict=False)]
    return all(end and any(map(is_emoji, [*end, after])) for end, after in ends)


@LAYOUT.named("format:line_indent")
def indents_lines(text: str) -> bool:
    """Each line more than the one before."""
    indents = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    return all(a < b for a, b in pairwise(indents))


@LAYOUT.named("format:quote_unquote")
def explains_quotes(text: str) -> bool:
    """No quotes side by side, and none at the end."""
    bare = "".join(text.replace("\u201c", '"').replace("\u201d", '"').replace("'\"'", "").split())
    return '""' not in bare and not bare.rstrip(_BUT_QUOTES).endswith('"')


@LAYOUT.named("format:list")
def has_separators(text: str, sep: str) -> bool:
    return text.count(sep) >= 2


@LAYOUT.named("format:thesis")
def begins_with_italics(text: str) -> bool:
    """Something in italics, and something after it, as HTML has it."""
    begin = text.find("<i>") if "<i>" in text else text.find("<em>")
    rest = text[begin:] if begin >= 0 else ""
    end = rest.find("</i>") if "</i>" in rest else rest.find("</em>")
    return end >= 0 and bool(rest[3:end].strip()) and bool(rest[end + 4 :].strip())


@LAYOUT.named("format:sub-bullets")
def has_sub_bullets(text: str) -> bool:
    """A `-` after every `*`."""
    return all("-" in bullet for bullet in text.split("*")[1:])


@LAYOUT.named("format:no_bullets_bullets")
def has_sentences_then_bullets(text: str) -> bool:
    """Lines with two sentences and up to one blank line, then two bullets that begin with `*`, and nothing else."""
    count = bullets = 0
    in_prose = True
    for line in map(str.strip, text.split("\n")):
        if line.startswith("*"):
            bullets, in_prose = bullets + 1, False
        elif in_prose:
            found = len(sentences(line))
            count, in_prose = count + found, found > 0
        else:
            return False
        if bullets and count < 2:
            return False
    return bullets >= 2


@LAYOUT.named("format:title_case")
def is_in_title_case(text: str) -> bool:
    """No word in small letters, nor one that begins small and goes on in capitals."""
    words = [token for token in tokens(text) if token[0].isalpha()]
    return not any(word[0].islower() and (word[1:].islower() or word[1:].isupper() or not word[1:]) for word in words)


@LAYOUT.named("format:output_template")
def fills_template(text: str) -> bool:
    return all(part in text for part in _TEMPLATE)


@LAYOUT.named("format:no_whitespace")
def lacks_space(text: str) -> bool:
    return not any(map(str.isspace, text))
