"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row

PARTIAL = {"countdown": 0.05, "word_sorting": 0.25, "spell_backward": 0.45, "mini_sudoku": 0.3, "leg_counting": 0.05}
"""What the library's scorers give at most, by data set, to wrong answers that share something with the right one."""


def reference(row: Row) -> str:
    return f"So it is this. <answer>{row['answer']}</answer>"


def low(row: Row) -> float:
    return PARTIAL.get(row["metadata"]["source_dataset"], 0.0)


def other_numbers(row: Row) -> str:
    """A formula with numbers that the puzzle doesn't give, and a right value where it has one."""
    return f"<answer>{row['metadata'].get('target', 24)} * 1 + 0</answer>"


def program(row: Row) -> str:
    """What would make a scorer that evaluates answers say anything."""
    return f"<answer>[setattr(type(__builtins__), 'x', 1), {row['answer']!r}][1]</answer>"


AUDIT = Audit(reference=reference, low=low, tricks={"other numbers": other_numbers, "a program": program})
