"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    letter = row["expected_answer"]
    return f"Answer: {letter}" if row.get("grading_mode") == "lenient_answer_colon" else rf"\boxed{{{letter}}}"


AUDIT = Audit(reference=reference)
