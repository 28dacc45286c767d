"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    return rf"\boxed{{{row['expected_answer']}}}"


AUDIT = Audit(reference=reference)
