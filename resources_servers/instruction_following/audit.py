"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row

TEXTS = {
    1: "The sea is black at night and the moon draws a road on it so it goes",
    2: "* Pear\n* Plum\n* Pineapple",
    3: '{"purpose": "Its light shows ships the way."}',
    4: "Tea begins with water.\n***\nMore water makes more of it.",
    5: "Have a GOOD Day!",
}
"""Answers to the example rows, by their ids."""


def reference(row: Row) -> str | None:
    return TEXTS.get(row["id"])


def low(row: Row) -> float:
    """Where shares count, any text follows some of the instructions."""
    modes = {row.get("grading_mode"), (row.get("verifier_metadata") or {}).get("grading_mode")}
    return 0.67 if "fraction" in modes else 0.0


def wrong(row: Row) -> str:
    """A text that breaks an instruction of every row, and goes on breaking it whatever is added."""
    return "apple, an apple. " * 9


AUDIT = Audit(reference=reference, low=low, wrong=wrong)
