"""What the audit of this environment knows."""

import json

from nemo_gym.audit import Audit, Replies, Row, call
from nemo_gym.testing.responses import Item


def reference(row: Row) -> Replies:
    expected = row["expected_action"]
    return [tuple(_calls(row)) or expected["content"]]


def shouted(row: Row) -> Replies:
    """The right tools, and for arguments whatever their kind is."""
    return [tuple({**each, "arguments": json.dumps({"value": True})} for each in _calls(row)) or " "]


def everything(row: Row) -> Replies:
    """The right calls, and each of them once more."""
    return [(*_calls(row), *_calls(row))]


def _calls(row: Row) -> list[Item]:
    expected = row["expected_action"]
    wanted = {"message": [], "function_call": [expected]}.get(expected["type"], expected.get("calls"))
    return [call(each["name"], **json.loads(each["arguments"])) for each in wanted or []]


def low(row: Row) -> float:
    """Where speaking is the right step, whatever is said is right."""
    return 1.0 if row["expected_action"]["type"] == "message" else 0.0


_NAME = "single_step_tool_use_with_argument_comparison"
_COMMON = Audit(reference=reference, low=low, tricks={"the right tool with other arguments": shouted})
AUDIT = {
    f"{prefix}{_NAME}": _COMMON for prefix in ("", "toolcall_schema_", "swe_pivot_", "search_pivot_", "droid_pivot_")
}
AUDIT[f"parallel_tool_calls_{_NAME}"] = Audit(
    reference=reference, tricks={"the right tool with other arguments": shouted, "more calls than needed": everything}
)
