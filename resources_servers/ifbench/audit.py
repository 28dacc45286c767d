"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row

TEXTS = {
    1: "Rain falls on dry fields, then meadows grow and rivers swell.",
    2: "14, 21, 28, 35, 42, 49",
    3: "We climb\n  it as\n    it takes\n      us up",
    4: "no",
    5: "A clock has hands. Hands move at every tick.",
}
"""Answers to the example rows, by their ids."""


def reference(row: Row) -> str | None:
    return TEXTS.get(row["id"])


def low(row: Row) -> float:
    """Where shares count, any text follows some of the instructions."""
    count = len(row["instruction_id_list"])
    return 1 - 1 / count if row.get("grading_mode") != "binary" else 0.0


def wrong(row: Row) -> str:
    return "It is is. So so. 7 of 9"


AUDIT = Audit(reference=reference, low=low, wrong=wrong)
