"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    return ", ".join(row["outputs"])


AUDIT = Audit(reference=reference)
