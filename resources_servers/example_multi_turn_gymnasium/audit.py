"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Replies, Row


def reference(row: Row) -> Replies:
    return [*["I see."] * len(row["follow_ups"]), f"It is {row['expected_answer']}."]


AUDIT = Audit(reference=reference)
