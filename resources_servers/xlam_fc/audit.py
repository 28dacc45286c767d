"""What the audit of this environment knows."""

import json

from nemo_gym.audit import Audit, Replies, Row, call
from nemo_gym.testing.responses import Item


def reference(row: Row) -> Replies:
    return [tuple(_calls(row))]


def everything(row: Row) -> Replies:
    """Every call that is right, and every function once more."""
    return [(*_calls(row), *(call(tool["name"]) for tool in row["responses_create_params"]["tools"]))]


def _calls(row: Row) -> list[Item]:
    answers = [(answer["name"], answer["arguments"]) for answer in row["expected_answers"]]
    return [call(name, **(json.loads(given) if isinstance(given, str) else given)) for name, given in answers]


AUDIT = Audit(reference=reference, tricks={"more calls than needed": everything})
