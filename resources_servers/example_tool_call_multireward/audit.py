"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Replies, Row, call


def reference(row: Row) -> Replies:
    expected = row["expected_call"]
    return call(expected["name"], **expected["arguments"])


AUDIT = Audit(
    reference=reference,
    full=3.0,
    not_tricks={
        "idle calls": "one call without a word is the form that the first of three points is for",
        "reserved routes": "tools that are not declared require nothing in 0.7; `declared_tools_only` forbids them",
    },
)
