"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Row


def reference(row: Row) -> str:
    return rf"So it is \boxed{{{row['expected_answer']}}}."


def other_formula(row: Row) -> str:
    """The right answer beside a box that holds another."""
    return rf"It may be {row['expected_answer']} or not. \boxed{{\text{{who knows}}}}"


TRICKS = {"another formula": other_formula}
LIBRARY_ONLY = Audit(reference=reference, tricks=TRICKS)
AUDIT = {
    "math_with_judge": Audit(
        reference=reference,
        judge=("[[A=B]]", "[[A!=B]]"),
        tricks=TRICKS,
        overrides=("++math_with_judge.resources_servers.math_with_judge.should_use_judge=true",),
    ),
    "math_stack_overflow": LIBRARY_ONLY,
    "dapo17k": LIBRARY_ONLY,
}
