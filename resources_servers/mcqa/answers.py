"""Reading the chosen option out of what a model wrote, by one of the contract's grading modes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nemo_gym.verifiers.extraction import last_box, unwrapped
from nemo_gym.verifiers.unicode_forms import nfkc

RowGradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
GradingMode = Literal[RowGradingMode, "lenient_answer_colon_md"]

_ONE_CAPITAL = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*")
_LEADING_CAPITAL = re.compile(r"\s*([A-Z])\s*[:).\-]")
_ANSWER_LINE = re.compile(r"answer[^\S\n]*+:([^\n]*)", re.IGNORECASE)
_MARKED_ANSWER_LINE = re.compile(r"[*_]{0,2}answer[*_]{0,2}\s*+:[*_\s]{0,2}([^\n]*)", re.IGNORECASE)
_LETTER_LIST = re.compile(
    r"(?<![A-Za-z0-9])([A-Z])(?:\s*+(?:[/|&,;]|(?i:or|and)\b)\s*+|\s++)(?=([A-Z])(?![A-Za-z0-9]))"
)
_LEADING_LETTER = re.compile(r"([A-Za-z])(?![A-Za-z0-9])")
_STANDALONE_CAPITAL = re.compile(r"(?<![A-Za-z0-9])([A-Z])(?![A-Za-z0-9])")
_DECORATION = " \t\r\n*_`.,;:"

# Letters that stand for A to D in Arabic and Bengali tests, and the wide ones of East Asian text.
_FOREIGN_LETTERS = str.maketrans(
    {
        "\u0623": " A",
        "\u0628": " B",
        "\u062c": " C",
        "\u062f": " D",
        "\u0985": " A",
        "\u09ac": " B",
        "\u09f1": " B",
        "\u09a1": " C",
        "\u09a2": " D",
        "\uff21": " A",
        "\uff22": " B",
        "\uff23": " C",
        "\uff24": " D",
    }
)


@dataclass(frozen=True)
class Options:
    """The options of a question: `texts` by upper-case letter."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, options: Iterable[Mapping[str, str | None]] | None) -> Options:
        """Single-letter keys with a text; what has neither is no option."""
        pairs = [pair for option in options or () for pair in option.items()]
        return cls({k.upper(): text for k, text in pairs if len(k) == 1 and k.isalpha() and text is not None})

    def letter(self, candidate: str) -> str | None:
        """`candidate` in upper case if it is one of the letters."""
        letter = candidate.upper()
        return letter if letter in self.texts else None

    def with_text(self, text: str) -> str | None:
        """The first option whose text is `text`, apart from case and spaces."""
        wanted = _folded(text)
        return next((letter for letter, own in self.texts.items() if wanted and _folded(own) == wanted), None)

    def within(self, texts: Sequence[str]) -> str | None:
        """The only option whose text occurs in one of `texts`, apart from case and spaces."""
        haystacks = [_folded(text) for text in texts]
        found = {
            letter
            for letter, own in self.texts.items()
            if (needle := _folded(own)) and any(needle in haystack for haystack in haystacks)
        }
        return found.pop() if len(found) == 1 else None


def read_answer(mode: GradingMode, text: str, options: Options, answer_prefix: str | None = None) -> str | None:
    """The letter a text chooses, None where it chooses none. `answer_prefix` serves `lenient_answer_colon_md` alone."""
    if mode == "lenient_answer_colon_md":
        return _from_marked_lines(text, options, answer_prefix)
    readers: dict[str, Callable[[str, Options], str | None]] = {
        "strict_single_letter_boxed": _from_box,
        "lenient_boxed": _from_box_or_its_text,
        "lenient_answer_colon": _from_first_answer_line,
    }
    return readers[mode](text, options)


def read_match(match: str, options: Options) -> str | None:
    """The letter a match of a row's own pattern stands for: itself, offered or not, else the option of that text."""
    found = normalised(match)
    if len(found) == 1 and found.isalpha():
        return found.upper()
    return options.with_text(found)


def normalised(text: str) -> str:
    """NFKC, foreign option letters as A to D, without outer spaces."""
    return nfkc(text).translate(_FOREIGN_LETTERS).strip()


def _from_box(text: str, options: Options) -> str | None:
    content = last_box(text)
    if content is None:
        return None
    content = unwrapped(content)
    match = _ONE_CAPITAL.fullmatch(content) or _LEADING_CAPITAL.match(content)
    return match[1] if match and match[1] in options.texts else None


def _from_box_or_its_text(text: str, options: Options) -> str | None:
    content = last_box(text)
    if content is None:
        return None
    return _from_box(text, options) or options.within([content, unwrapped(content)])


def _from_first_answer_line(text: str, options: Options) -> str | None:
    match = _ANSWER_LINE.search(text)
    if match is None:
        return None
    rest = unwrapped(match[1])
    return options.letter(rest) or options.with_text(rest)


def _from_marked_lines(text: str, options: Options, answer_prefix: str | None) -> str | None:
    text = nfkc(text)
    payloads = [(match.start(), match[1]) for match in _MARKED_ANSWER_LINE.finditer(text)]
    if answer_prefix:
        prefix = re.escape(nfkc(answer_prefix))
        lines = re.finditer(rf"{prefix}([^\n]*)", text, re.IGNORECASE)
        payloads += [(match.start(), match[1]) for match in lines]
    in_order = sorted(payloads, key=lambda payload: payload[0], reverse=True)
    letters = (_payload_letter(payload, options) for _, payload in in_order)
    found = next((letter for letter in letters if letter), None)
    return found or (_from_box(text, options) if answer_prefix else None)


def _payload_letter(payload: str, options: Options) -> str | None:
    payload = normalised(payload).strip(_DECORATION)
    if _lists_several(payload, options):
        return None
    if len(payload) == 1:
        return options.letter(payload)
    leading = _LEADING_LETTER.match(payload)
    if leading:
        return options.letter(leading[1])
    standalone = _STANDALONE_CAPITAL.findall(payload)
    return options.letter(standalone[-1]) if standalone else None


def _lists_several(payload: str, options: Options) -> bool:
    """Whether two different options stand side by side, as in `A or B`."""
    pairs = ((match[1], match[2]) for match in _LETTER_LIST.finditer(payload))
    return any(one != other and {one, other} <= options.texts.keys() for one, other in pairs)


def _folded(text: str) -> str:
    return " ".join(nfkc(text).lower().split())
