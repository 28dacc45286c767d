r"""Finding the answer in what a model wrote: boxes, tags, fences, stated answers and choice letters.

Every function takes text and gives a piece of it, or None where there is none. They never raise, and take linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_BOX = "\\boxed{"
_BRACE = re.compile(r"[{}]")
_ANSWER_LINE = re.compile(r"(?:final\s{1,8})?answer[*_]{0,2}[^\S\n]{0,8}[:：]([^\n]*)", re.IGNORECASE)
_ANSWER_COLON_LETTER = re.compile(
    r"[*_]{0,2}answer[*_]{0,2}\s{0,8}:[*_\s]{0,2}([A-Za-z])(?![A-Za-z0-9])", re.IGNORECASE
)
_STATED_LETTER = re.compile(
    r"(?<![A-Za-z])(?:answer|option|choice)[*_]{0,2}[^\S\n]{0,8}(?:[:：]|is:?|=)[*_\s(\[$]{0,8}"
    r"(?:\\(?:boxed|text|textbf|mathrm)\{){0,3}\(?([A-Za-z])"
    r"(?![A-Za-z0-9^=+/]|[*_]{1,4}[A-Za-z0-9]|[^\S\n]{0,8}[=<>+/^])",
    re.IGNORECASE,
)
_WORD_FOLLOWS = re.compile(r"[^\S\n]+[A-Za-z]")
_LONE_CAPITAL = re.compile(r"\b[A-Z]\b")
_FENCED = re.compile(r"```(.*?)```", re.DOTALL)
_INFO = re.compile(r"(?:([\w+#.-]+)(?=\s))?(.*)", re.DOTALL)
_DECORATION = re.compile(r"[\s$*_().,;:\[\]]+")


def last_box(text: str) -> str | None:
    r"""What the last `\boxed{` holds, up to its matching brace; None where that never closes."""
    start = text.rfind(_BOX)
    return None if start < 0 else _until_closed(text, start + len(_BOX))


def last_closed_box(text: str) -> str | None:
    r"""What the last `\boxed{…}` that closes holds."""
    closings = _closings(text)
    starts = [match.end() - 1 for match in re.finditer(re.escape(_BOX), text)]
    found = next((start for start in reversed(starts) if start in closings), None)
    return None if found is None else text[found + 1 : closings[found]]


def flat_boxes(text: str) -> list[str]:
    r"""What each `\boxed{…}` without braces inside holds."""
    return re.findall(r"\\boxed\{([^{}]*)\}", text)


def first_box(text: str) -> str | None:
    r"""What stands between the first `\boxed{` and the next closing brace, which may belong to a brace inside."""
    start = text.find(_BOX)
    end = text.find("}", start) if start >= 0 else -1
    return text[start + len(_BOX) : end] if end >= 0 else None


def unwrapped(text: str, commands: Collection[str] = ("text",)) -> str:
    r"""The text inside `\text{…}`, or another of `commands`, where that is all there is, however often wrapped."""
    text = text.strip()
    closings = _closings(text)
    opening = re.compile(r"\s*\\(?:" + "|".join(map(re.escape, commands)) + r")\{")
    begin, end = 0, len(text)
    while match := opening.match(text, begin, end):
        inner_end = len(text[:end].rstrip()) - 1 if text[end - 1 : end].isspace() else end - 1
        if closings.get(match.end() - 1) != inner_end:
            break
        begin, end = match.end(), inner_end
    return text[begin:end].strip()


def last_tagged(text: str, tag: str) -> str | None:
    """What the last `<tag>…</tag>` holds, stripped; names of tags count in any case."""
    lower, opening, closing = text.lower(), f"<{tag.lower()}>", f"</{tag.lower()}>"
    if len(lower) != len(text):  # some letters have longer lower cases
        lower = text
    end = lower.rfind(closing)
    start = lower.rfind(opening, 0, end) if end >= 0 else -1
    return text[start + len(opening) : end].strip() if start >= 0 else None


def between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the last `opening` that is closed and its `closing`, as it is."""
    end = text.rfind(closing)
    start = text.rfind(opening, 0, max(end, 0)) if end >= 0 else -1
    return text[start + len(opening) : end] if start >= 0 else None


def last_fence(text: str) -> str | None:
    """The lines between the last two lines that hold three backticks; a language name there is left out."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) > 1 else None


def fenced_blocks(text: str, language: str | None = None) -> list[str]:
    """What each block between three backticks holds, stripped; only those of a language, in any case, if one is named.

    Blocks may begin and end within a line. What stands after the opening backticks up to the first space is the
    language, unless the whole block is one word.
    """
    blocks = (match[1] for match in _FENCED.finditer(text))
    parted = [_INFO.match(block) for block in blocks]
    named = [(match[1] or "", match[2].strip()) for match in parted if match]
    return [content for name, content in named if language is None or name.lower() == language.lower()]


def last_line(text: str) -> str | None:
    """The last line that isn't blank, stripped."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else None


def stated_answer(text: str) -> str | None:
    """The rest of the line after the last `answer:` or `final answer:`, without an end dot."""
    stated = [match[1].strip() for match in _ANSWER_LINE.finditer(text)]
    return stated[-1].removesuffix(".").strip() if stated else None


def stated_letter(text: str, letters: Collection[str] | None = None) -> str | None:
    """The letter that the text last says is the answer (`Answer: D`, `the answer is (D)`), in upper case.

    A letter that begins a word or a formula (`E = mc^2`) is none.
    """
    found = None
    for match in _STATED_LETTER.finditer(text):
        is_article = match[1] == "a" and _WORD_FOLLOWS.match(text, match.end(1)) is not None
        if not is_article and (letters is None or match[1].upper() in letters):
            found = match[1].upper()
    return found


def boxed_letter(content: str) -> str | None:
    """The letter that is all a box holds, apart from brackets, marks and text commands. `E` in a relation is none."""
    bare = _DECORATION.sub("", unwrapped(content, ("text", "textbf", "mathrm", "mathbf")))
    return bare if len(bare) == 1 and bare.isascii() and bare.isupper() else None


def chosen_letter(text: str, letters: Collection[str] | None = None, *, statement_first: bool = False) -> str | None:
    r"""The letter a text chooses: the last capital that stands alone in its last flat `\boxed{…}`, else the last after
    `answer:`; None if that is not among `letters`.

    So a boxed relation with an `E` in it goes before `Answer: D`. `statement_first` is the better rule: a box that
    holds just a letter counts most, then what is stated last, and letters inside boxed formulas least.
    """
    boxes = flat_boxes(text)
    alone = _LONE_CAPITAL.findall(boxes[-1]) if boxes else []
    if statement_first:
        plain = boxed_letter(last_closed_box(text) or "")
        candidates = [plain, stated_letter(text, letters), *alone[-1:]]
        return next((each for each in candidates if each and (letters is None or each in letters)), None)
    said = _ANSWER_COLON_LETTER.findall(text)
    letter = alone[-1] if alone else said[-1].upper() if said else None
    return letter if letter and (not letters or letter in letters) else None


def json_objects(text: str) -> Iterator[str]:
    """Every outermost `{…}` whose braces balance, those in JSON strings not counted."""
    depth, start, in_string, escaped = 0, 0, False, False
    for place, character in enumerate(text):
        if in_string:
            in_string = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            in_string = depth > 0
        elif character == "{":
            start = place if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                yield text[start : place + 1]


def _until_closed(text: str, begin: int) -> str | None:
    depth = 1
    for brace in _BRACE.finditer(text, begin):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[begin : brace.start()]
    return None


def _closings(text: str) -> dict[int, int]:
    """Where each brace that opens is closed."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closings[opened.pop()] = brace.start()
    return closings
