"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    return str(row["expected_answer"])


AUDIT = Audit(reference=reference, judge=("A", "B"), labels=("A", "A: CORRECT", "CORRECT"))
