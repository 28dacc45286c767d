from __future__ import annotations

import unicodedata

import pytest

from nemo_gym.verifiers.unicode_forms import MOST_MARKS, nfkc

TEXTS = [
    "plain",
    "",
    "\uff21\uff22",
    "e\u0301",
    "H\u2082O 10\u00b2",
    "\u1112\u1161\u11ab",
    "\ud800",
    "\u0f73",
    "x\n\u00a0y",
]


@pytest.mark.parametrize("text", [*TEXTS, "e\u0301 o\u0316\u0301 \u304b\u3099 \uff76\uff9e " * 400])
def test_real_text_gets_its_nfkc_form(text: str) -> None:
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0344", "\uff9e", "\u0f73", "\U0001d167\u0316"])
def test_marks_without_end_are_cut(marks: str) -> None:
    """A run of a million marks would take an hour to sort."""
    found = nfkc("a" + marks * 500_000 + "b")
    assert len(found) <= 2 + 2 * MOST_MARKS
    assert found[-1] == "b"
