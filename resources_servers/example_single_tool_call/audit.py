"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Replies, Row, call


def reference(row: Row) -> Replies:
    return [call("get_weather", city="Oslo"), "It is cold."]


AUDIT = Audit(reference=reference, not_tricks={"idle calls": "asking for the weather is all there is to do"})
