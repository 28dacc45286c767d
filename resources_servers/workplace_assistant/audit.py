"""What the audit of this environment knows."""

import json

from nemo_gym.audit import Audit, Replies, Row, call


def reference(row: Row) -> Replies:
    return [call(wanted["name"], **json.loads(wanted["arguments"])) for wanted in row["ground_truth"]]


AUDIT = Audit(reference=reference)
