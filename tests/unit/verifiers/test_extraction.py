from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.verifiers import extraction
from nemo_gym.verifiers.extraction import (
    between,
    boxed_letter,
    chosen_letter,
    fenced_blocks,
    first_box,
    flat_boxes,
    json_objects,
    last_box,
    last_closed_box,
    last_fence,
    last_line,
    last_tagged,
    stated_answer,
    stated_letter,
    unwrapped,
)

BOXES = [
    (r"\boxed{7}", "7", "7"),
    (r"\boxed{1} then \boxed{2}", "2", "2"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", r"\frac{1}{2}"),
    (r"\boxed{1} \boxed{2", None, "1"),
    (r"\boxed{a \boxed{b} c}", "b", "b"),
    (r"{ \boxed{1}", "1", "1"),
    (r"\boxed{ { 1 }", None, None),
    (r"\boxed{}", "", ""),
    (r"no box", None, None),
    (r"\boxed {7}", None, None),
]


@pytest.mark.parametrize(("text", "last", "last_closed"), BOXES)
def test_boxes(text: str, last: str | None, last_closed: str | None) -> None:
    assert (last_box(text), last_closed_box(text)) == (last, last_closed)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{1} \boxed{2}", "1"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1"),
        ("} \\boxed{a\nb}", "a\nb"),
        (r"\boxed{}", ""),
        (r"\boxed{1", None),
        ("1}", None),
    ],
)
def test_the_first_box_ends_at_the_next_brace(text: str, inside: str | None) -> None:
    assert first_box(text) == inside


@pytest.mark.parametrize(
    ("text", "language", "blocks"),
    [
        ("```sql\nSELECT 1;\n``` and ```\nplain\n```", None, ["SELECT 1;", "plain"]),
        ("```sql\nSELECT 1;\n``` and ```\nplain\n```", "sql", ["SELECT 1;"]),
        ("```SQL SELECT 2``` ```sqlite\nx\n```", "sql", ["SELECT 2"]),
        ("```c++\na\n\nb\n```", "C++", ["a\n\nb"]),
        ("```SELECT```", None, ["SELECT"]),
        ("```sql```", "sql", []),
        ("```sql\nnever closed", None, []),
        ("``````", None, [""]),
    ],
)
def test_fenced_blocks(text: str, language: str | None, blocks: list[str]) -> None:
    assert fenced_blocks(text, language) == blocks


UNWRAPPED = [
    (r"\text{A}", "A"),
    (r" \text{ \text{A} } ", "A"),
    (r"\text{A} or \text{B}", r"\text{A} or \text{B}"),
    (r"\text{A", r"\text{A"),
    (r"\textbf{A}", r"\textbf{A}"),
    (r"\text{a{b}c}", "a{b}c"),
    ("A", "A"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "inside"), UNWRAPPED)
def test_text_commands_around_everything_are_taken_off(text: str, inside: str) -> None:
    assert unwrapped(text) == inside


def test_other_commands_on_request() -> None:
    assert unwrapped(r"\textbf{\mathrm{A}}", ("textbf", "mathrm")) == "A"


FOUND: list[tuple[Callable[..., Any], tuple[str, ...], str | None]] = [
    (last_tagged, ("<answer>1</answer> <ANSWER> 2 </ANSWER>", "answer"), "2"),
    (last_tagged, ("<answer>1", "answer"), None),
    (last_tagged, ("<answer>1</answer> <answer>2", "answer"), "1"),
    (last_tagged, ("İ<answer>1</answer>", "answer"), "1"),
    (between, ("[[a]] [[b]] [[c", "[[", "]]"), "b"),
    (between, ("a", "[[", "]]"), None),
    (last_fence, ("```python\nx = 1\n```\n", ""), "x = 1"),
    (last_fence, ("```\na\n```\nthen\n```py\nb\nc\n```", ""), "b\nc"),
    (last_fence, ("```python\nx = 1", ""), None),
    (last_line, (" a\n b \n\n", ""), "b"),
    (last_line, (" \n", ""), None),
    (stated_answer, ("Answer: 1\nFinal answer: 42.\n", ""), "42"),
    (stated_answer, ("**Final Answer**: 3.5", ""), "3.5"),
    (stated_answer, ("answer：是", ""), "是"),
    (stated_answer, ("the answer is 4", ""), None),
]


@pytest.mark.parametrize(("rule", "arguments", "expected"), FOUND)
def test_pieces(rule: Callable[..., Any], arguments: tuple[str, ...], expected: str | None) -> None:
    assert rule(*(argument for argument in arguments if argument)) == expected


STATED = [
    ("Answer: D", "D"),
    ("answer: d", "D"),
    ("**Answer: C**", "C"),
    ("**Answer:** (B)", "B"),
    ("The answer is C.", "C"),
    (r"So the answer is $\boxed{B}$", "B"),
    (r"Answer: \boxed{\text{A}}", "A"),
    ("Answer: A\n... no.\nAnswer: B", "B"),
    ("The correct option is B, since ...", "B"),
    ("Answer: D) the last", "D"),
    ("Answer: E = mc^2", None),
    ("Answer: E=mc^2", None),
    ("Answer: A+B", None),
    ("Answer: A/B", None),
    ("The answer is a large number", None),
    ("Answer: Apples", None),
    ("nothing", None),
    ("Answer: Z", None),
]


@pytest.mark.parametrize(("text", "letter"), STATED)
def test_stated_letters(text: str, letter: str | None) -> None:
    assert stated_letter(text, "ABCDE") == letter


@pytest.mark.parametrize(
    ("content", "letter"),
    [
        ("A", "A"),
        (r"\text{(B)}", "B"),
        ("C.", "C"),
        ("E = mc^2", None),
        ("a", None),
        ("AB", None),
        ("", None),
        ("Ä", None),
    ],
)
def test_boxes_that_hold_a_letter(content: str, letter: str | None) -> None:
    assert boxed_letter(content) == letter


B80 = "So \\boxed{E = mc^2} holds.\nAnswer: D"
CHOICES = [
    (B80, "E", "D"),
    (r"\boxed{A}", "A", "A"),
    ("\\boxed{A}\nAnswer: B", "A", "A"),
    (r"\boxed{\text{B}}", None, "B"),
    (r"\boxed{option C}", "C", "C"),
    ("Answer: B", "B", "B"),
    ("the answer is B", None, "B"),
    (r"\boxed{Z}", None, None),
    ("\\boxed{42}\nAnswer: C", "C", "C"),
    ("**Answer:** C", None, "C"),  # three marks: 0.7 sees no letter
    ("", None, None),
]


@pytest.mark.parametrize(("text", "by_default", "statement_first"), CHOICES)
def test_choices(text: str, by_default: str | None, statement_first: str | None) -> None:
    """B80: a stated answer outranks letters inside a formula where that is asked for."""
    assert chosen_letter(text, "ABCDE") == by_default
    assert chosen_letter(text, "ABCDE", statement_first=True) == statement_first


LETTERS = st.sampled_from("ABCD")
FILLER = st.text(alphabet="xyz \n.=+{}$", max_size=40)


@given(LETTERS, LETTERS, FILLER)
def test_another_letter_never_passes_for_the_stated_one(right: str, said: str, filler: str) -> None:
    """B83: changing the answer changes what is read, whatever stands before it."""
    for text in (f"{filler}\nAnswer: {said}", f"{filler}\n\\boxed{{{said}}}"):
        assert (chosen_letter(text, "ABCD", statement_first=True) == right) is (said == right)


@given(
    st.recursive(
        st.sampled_from(["1", "x", r"\frac"]), lambda inner: st.lists(inner).map(lambda p: "{" + "".join(p) + "}")
    )
)
def test_whatever_is_balanced_survives_boxing(content: str) -> None:
    assert last_box(f"so \\boxed{{{content}}} }} {{") == content
    assert last_closed_box(f"\\boxed{{{content}}} \\boxed{{") == content


def test_objects_in_text() -> None:
    assert list(json_objects('a {"x": "}{"} b {"y": {"z": 1}} {')) == ['{"x": "}{"}', '{"y": {"z": 1}}']
    assert list(json_objects(r'{"x": "\"}"} "{')) == [r'{"x": "\"}"}']


@contextmanager
def cpu_seconds(seconds: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


LONG = [
    "\\boxed{" * 30_000,
    "\\text{" * 30_000 + "}" * 30_000,
    "answer:" * 30_000,
    "answer" + " " * 200_000,
    "<answer>" * 30_000,
    "{" * 200_000,
    "Answer: \\boxed{" * 20_000,
    "\n" * 200_000,
    "*_" * 100_000,
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_long_texts_take_no_long_time(text: str) -> None:
    """A text that a model made to be slow: it would take minutes with a rule that isn't linear."""
    with cpu_seconds(20):  # its signal ends the process
        for rule in (
            last_box,
            last_closed_box,
            first_box,
            fenced_blocks,
            flat_boxes,
            unwrapped,
            last_fence,
            last_line,
            stated_answer,
            stated_letter,
        ):
            rule(text)
        for first in (False, True):
            chosen_letter(text, statement_first=first)
        last_tagged(text, "answer")
        list(json_objects(text))


def test_every_rule_is_in_the_tables() -> None:
    public = {
        name for name, thing in vars(extraction).items() if getattr(thing, "__module__", "") == extraction.__name__
    }
    assert {name for name in public if not name.startswith("_")} <= set(globals())
