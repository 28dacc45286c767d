"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Replies, Row
from resources_servers.calendar.planning import answer


def reference(row: Row) -> Replies:
    return answer(row["exp_cal_state"])


def before(row: Row) -> Replies:
    """The calendar as it was before the last words."""
    said = [message["content"] for message in row["responses_create_params"]["input"] if message["role"] == "assistant"]
    return str([text for text in said if text.startswith("[")][-1])


def at_once(row: Row) -> Replies:
    """All events, at the same time."""
    events = [{**event, "start_time": "12pm"} for event in row["exp_cal_state"].values()]
    return str(events).replace("'", '"').replace("None", "null")


AUDIT = Audit(reference=reference, tricks={"the calendar of before": before, "all events at once": at_once})
