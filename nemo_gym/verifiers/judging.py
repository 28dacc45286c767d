"""Asking a judge so that a candidate can't answer for it, and reading what it says.

A judge that can't be asked is `nemo_gym.judge`'s matter: the rollout is then unmeasured. A judge that says nothing
usable is a `Verdict` without a label, with the issues that a metric counts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")
_MIN_WORD = 3
_AROUND_GRADE = " \t\r.,:;*_`\"'()[]"
_AFTER_VERDICT = re.compile(r"[\s.*_`\"'()]*")


class Issue(StrEnum):
    """What was wrong with a judge's reply."""

    TRUNCATED = "truncated_judge_output"
    UNPARSEABLE = "unparseable_judge_output"
    NO_VERDICT = "no_verdict"
    CONFLICTING = "conflicting_verdicts"
    REPEATED = "repeated_verdict"


class Position(StrEnum):
    """Which label of a reply is the verdict."""

    FIRST = "first"
    LAST = "last"
    FINAL = "final"
    """The last one, if nothing follows it: a label that is only talked about is none."""


@dataclass(frozen=True)
class Verdict:
    """What a judge said. `label` is None where that can't be told."""

    label: str | None
    issues: tuple[Issue, ...] = ()


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with `{name}` replaced, in one pass: braces in the values are text. `{{` and `}}` are braces, and a
    name without a value stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return values.get(match[1], match[0])

    return _PLACEHOLDER.sub(value, template)


def escape_labels(text: str, labels: Sequence[str]) -> str:
    """A candidate's text in which labels are none any more, should the judge repeat it.

    Bracketed ones (`[[A=B]]`) lose a bracket, in any case; plain words (`CORRECT`) change their case, by which they are
    told from labels. Plain ones of one or two characters stay: read those at `Position.FINAL`.
    """
    for label in sorted(labels, key=len, reverse=True):
        if label.startswith("[[") and label.endswith("]]"):
            pattern = re.compile(_bracketed(re.escape(label.strip("[]").strip())), re.IGNORECASE)
            text = pattern.sub(lambda found: f"[{found[1]}]", text)
        elif len(label) >= _MIN_WORD:
            text = text.replace(label, label.lower() if label != label.lower() else label.upper())
    return text


def escape_ratings(text: str) -> str:
    """A candidate's text in which `[[7]]` is `[7]`."""
    return re.sub(_bracketed(r"\d++"), r"[\1]", text)


def delimited(text: str, name: str = "candidate") -> str:
    """The text between tags that it doesn't hold itself: what pretends to end it stays inside."""
    held = {found[1] for found in re.finditer(rf"</?{re.escape(name)}((?:_[0-9]+)?)>", text)}
    suffix, number = "", 0
    while suffix in held:
        number += 1
        suffix = f"_{number}"
    return f"<{name}{suffix}>\n{text}\n</{name}{suffix}>"


def find_labels(text: str, labels: Sequence[str]) -> list[tuple[int, str]]:
    """The labels of a reply with their places, from left to right; at one place the longest, so that `INCORRECT` does
    not hold a `CORRECT`."""
    known = [label for label in labels if label]
    if not known:
        return []
    longest_first = "|".join(re.escape(label) for label in sorted(known, key=len, reverse=True))
    return [(match.start(), match[0]) for match in re.finditer(longest_first, text)]


def read_verdict(
    text: str, labels: Sequence[str], *, position: Position = Position.LAST, is_complete: bool = True
) -> Verdict:
    """The verdict of a reply. `is_complete`: it was not cut off; a cut one has the issue, and no verdict at
    `Position.FINAL`."""
    found = find_labels(text, labels)
    issues = _issues(text, [label for _, label in found], is_complete=is_complete)
    if not found:
        return Verdict(None, issues)
    if position is Position.FIRST:
        return Verdict(found[0][1], issues)
    start, last = found[-1]
    is_final = _AFTER_VERDICT.fullmatch(text, start + len(last)) is not None and is_complete
    if position is Position.FINAL and not is_final:
        return Verdict(None, issues if issues else (Issue.NO_VERDICT,))
    return Verdict(last, issues)


def read_rating(text: str, ratings: Sequence[int], *, is_complete: bool = True) -> int | None:
    """The last `[[number]]` of a complete reply, if it is one of `ratings`."""
    found = re.findall(r"\[\[(\d{1,9})\]\]", text)
    return int(found[-1]) if found and is_complete and int(found[-1]) in ratings else None


def read_grade(text: str, grades: Sequence[str], *, whole_words: bool = False) -> str | None:
    """The grade letter a reply gives: its first character, else the first of its last line, else the first of `grades`
    that occurs anywhere in it.

    `whole_words`: a letter that is all of the last line goes before the first character, which may be an article, and
    elsewhere it must stand alone. Otherwise any capital A anywhere is the grade A.
    """
    text = text.strip()
    final = text.rpartition("\n")[2].strip(_AROUND_GRADE)
    if whole_words and final in tuple(grades):
        return final
    for start in (text[:1], text.rpartition("\n")[2].strip()[:1]):
        if start in grades and start and not (whole_words and _begins_word(text, start)):
            return start
    if whole_words:
        alone = re.findall(r"(?<![A-Za-z0-9_])(?:" + "|".join(map(re.escape, grades)) + r")(?![A-Za-z0-9_'])", text)
        return alone[-1] if alone else None
    return next((grade for grade in grades if grade in text), None)


@dataclass(frozen=True)
class BothWays:
    """What a judge says about two answers in one order, and in the other if that was asked."""

    first: Verdict
    swapped: Verdict | None = None
    equal_label: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether it says so in every order that was asked."""
        return _is(self.first, self.equal_label) and (self.swapped is None or _is(self.swapped, self.equal_label))

    @property
    def depends_on_order(self) -> bool:
        """Whether it said equal first and not when asked the other way round."""
        return _is(self.first, self.equal_label) and not self.is_equal

    def reward(self, if_swap_fails: float = 0.0) -> float:
        """1 for equal answers, `if_swap_fails` when that depends on the order, else 0."""
        return 1.0 if self.is_equal else if_swap_fails if self.depends_on_order else 0.0


async def ask_both_ways(
    ask: Callable[[str, str], Awaitable[Verdict]], expected: str, generated: str, *, equal_label: str, swap: bool = True
) -> BothWays:
    """Ask with the expected answer first and, if that is equal and `swap` is on, with it second. Raises what `ask`
    raises."""
    first = await ask(expected, generated)
    if not swap or not _is(first, equal_label):
        return BothWays(first, None, equal_label)
    return BothWays(first, await ask(generated, expected), equal_label)


def issue_rates(records: Sequence[Sequence[Issue | str]]) -> dict[str, float]:
    """The share of judged rollouts with any issue, as `judgement_parsing_issue_rate`, and with each kind, as
    `judgement_parsing_issue_rate/<issue>`; nothing without rollouts. Each record is the issues of one rollout."""
    if not records:
        return {}
    name = "judgement_parsing_issue_rate"
    rates = {name: sum(1 for issues in records if issues) / len(records)}
    for issue in Issue:
        rates[f"{name}/{issue}"] = sum(1 for issues in records if issue in issues) / len(records)
    return rates


def _issues(text: str, labels: list[str], *, is_complete: bool) -> tuple[Issue, ...]:
    issues = [] if is_complete else [Issue.TRUNCATED]
    if not text.strip():
        return (*issues, Issue.UNPARSEABLE)
    if not labels:
        return (*issues, Issue.NO_VERDICT)
    if len(set(labels)) > 1:
        issues.append(Issue.CONFLICTING)
    elif len(labels) > 1:
        issues.append(Issue.REPEATED)
    return tuple(issues)


def _bracketed(pattern: str) -> str:
    """A pattern in at least two brackets; many that open are looked at once, not from each of them again."""
    return rf"(?<!\[)\[{{2,}}+\s*+({pattern})\s*+\]{{2,}}+"


def _is(verdict: Verdict, label: str) -> bool:
    return bool(label) and verdict.label == label


def _begins_word(text: str, letter: str) -> bool:
    lines = (text, text.rpartition("\n")[2].strip())
    return any(re.match(re.escape(letter) + r"[A-Za-z0-9_']", line) for line in lines)
