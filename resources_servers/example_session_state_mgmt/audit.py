"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Replies, Row, call


def reference(row: Row) -> Replies:
    missing = row["expected_count"] - row["initial_count"]
    return [call("increment_counter", count=missing), "Done."] if missing else "It is fine as it is."


def seeded_again(row: Row) -> Replies:
    """The counter's beginning, put where it should end."""
    return [call("seed_session", initial_count=row["expected_count"]), "Done."]


def low(row: Row) -> float:
    """Where the counter should stay as it is, doing nothing is right."""
    return float(row["expected_count"] == row["initial_count"])


AUDIT = Audit(reference=reference, low=low, tricks={"a second seed": seeded_again})
