"""What a failed rollout is: which kind, whose fault, whether it is tried again, and its row in the failures file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from nemo_gym.rollouts.errors import ReplyError
from nemo_gym.rollouts.keys import (
    NG_FAILURE_CAUSE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_FAILURE_HTTP_STATUS_KEY,
    NG_FAILURE_MESSAGE_KEY,
    NG_FAILURE_RESPONSE_BODY_KEY,
    NG_FAILURE_TYPE_KEY,
    NG_TERMINAL_KEY,
)
from nemo_gym.schema.failure_kinds import PROVIDER_UNAVAILABLE, TRANSPORT_TIMEOUT

AGENT_REQUEST_FAILED_FAILURE_CLASS = "agent_request_failed"
AGENT_RUN_ERROR_FAILURE_CLASS = "agent_run_error"
ENVIRONMENT_SERVER_FAILURE_CLASS = "environment_server_failed"

NO_RESULT_FAILURE_CLASSES = frozenset(
    {
        AGENT_REQUEST_FAILED_FAILURE_CLASS,
        AGENT_RUN_ERROR_FAILURE_CLASS,
        ENVIRONMENT_SERVER_FAILURE_CLASS,
        TRANSPORT_TIMEOUT,
    }
)
"""Nothing ran to completion: there is no trace to read back and no number to average."""

_BUSY_STATUSES = frozenset({429, 502, 503, 504})
_PRESSED_STATUSES = frozenset({429, 503, 529})
"""A peer that answers these would answer again if it were asked less."""
_DOWN_STATUSES = _PRESSED_STATUSES | {502, 504, 520}
_BODY_CHARACTERS = 2000
_BODY_BYTES = 8000

Boundary: TypeAlias = Literal[
    "transport", "agent", "environment", "tool", "verifier", "provider", "session", "collector"
]


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Where a kind of failure happens, whether it is tried again in place, and whether resume leaves it alone.

    No failure is scored: it counts as a reward only where `count_failure_classes_as_zero` names its class.
    """

    boundary: Boundary
    retried: bool = False
    terminal: bool = False
    most: int | None = None
    """How often it is retried at most, where that is less than is usual."""


FAILURE_RULES: Mapping[str, FailureRule] = {
    AGENT_REQUEST_FAILED_FAILURE_CLASS: FailureRule("transport", retried=True),
    AGENT_RUN_ERROR_FAILURE_CLASS: FailureRule("agent"),
    ENVIRONMENT_SERVER_FAILURE_CLASS: FailureRule("environment"),
    "transport_unreachable": FailureRule("transport", retried=True),
    "transport_peer_drop": FailureRule("transport", retried=True, most=2),
    "transport_timeout": FailureRule("transport", retried=True, most=1),
    "transport_local_resource": FailureRule("transport", retried=True),
    "agent_timeout": FailureRule("agent"),
    "agent_command_not_allowed": FailureRule("agent", terminal=True),
    "judge_failed": FailureRule("verifier"),
    "judge_unparseable": FailureRule("verifier"),
    "judge_invalid": FailureRule("verifier"),
    "verifier_error": FailureRule("verifier"),
    "provider_unavailable": FailureRule("provider", retried=True),
    "provider_quota_exhausted": FailureRule("provider"),
    "provider_oom_killed": FailureRule("provider"),
    "session_lost": FailureRule("session", retried=True),
    "session_expired": FailureRule("session"),
    "session_release_failed": FailureRule("session"),
    "cancelled": FailureRule("collector"),
    "kill_shaped": FailureRule("collector"),
    "shutdown": FailureRule("collector"),
    "persistence_failed": FailureRule("collector"),
    "cohort_incomplete": FailureRule("collector"),
}
_UNKNOWN_KIND = FailureRule("environment")


def rule_for(failure_class: str) -> FailureRule:
    """The rule of a kind of failure; one nobody knows is neither tried again in place nor terminal."""
    return FAILURE_RULES.get(failure_class, _UNKNOWN_KIND)


def is_worth_a_retry(failure: Mapping[str, Any], number: int) -> bool:
    """Whether a failed request is sent again for the `number`-th time.

    A stage that took too long is tried again once, whatever its kind: it may have waited for somebody else's work.
    """
    cause = failure.get(NG_FAILURE_CAUSE_KEY)
    was_late = isinstance(cause, Mapping) and cause.get("stage") and failure.get(NG_FAILURE_HTTP_STATUS_KEY) == 504
    rule = rule_for(TRANSPORT_TIMEOUT if was_late else failure[NG_FAILURE_CLASS_KEY])
    return rule.retried and (rule.most is None or number <= rule.most)


def failure_class_of(result: Mapping[str, Any]) -> str | None:
    """The kind of failure a result declares, None for a measured rollout."""
    value = result.get(NG_FAILURE_CLASS_KEY)
    return None if value is None else str(value)


def is_no_result(result: Mapping[str, Any]) -> bool:
    return failure_class_of(result) in NO_RESULT_FAILURE_CLASSES


def is_request_failure(error: BaseException) -> bool:
    """Whether an exception says something about one rollout's request rather than about the program."""
    import aiohttp
    import orjson

    return isinstance(error, aiohttp.ClientError | orjson.JSONDecodeError | TimeoutError | ConnectionError | ReplyError)


def failure_row(error: BaseException) -> dict[str, Any]:
    """The result that stands for a rollout whose request failed."""
    status = http_status_of(error)
    row: dict[str, Any] = {
        NG_FAILURE_CLASS_KEY: _class_of(error, status),
        NG_FAILURE_TYPE_KEY: type(error).__name__,
        NG_FAILURE_MESSAGE_KEY: str(error),
    }
    if status is not None:
        row[NG_FAILURE_HTTP_STATUS_KEY] = status
    content = getattr(error, "response_content", None)
    if content:
        row[NG_FAILURE_RESPONSE_BODY_KEY] = _readable(content)
    if (cause := _cause_of(error)) is not None:
        row[NG_FAILURE_CAUSE_KEY] = cause
    return row


def _cause_of(error: BaseException) -> dict[str, Any] | None:
    """Where in the chain of servers the failure began, when the reply tells."""
    from nemo_gym.serve.failures import Cause

    cause = Cause.of_headers(getattr(error, "headers", None))
    return None if cause is None else {name: value for name, value in asdict(cause).items() if value is not None}


def _class_of(error: BaseException, status: int | None) -> str:
    if isinstance(error, ReplyError):
        return ENVIRONMENT_SERVER_FAILURE_CLASS
    if _ran_out_of_time(error, status):
        return TRANSPORT_TIMEOUT
    if (origin := _class_at_origin(_cause_of(error))) is not None:
        return origin
    answered = status is not None and status not in _BUSY_STATUSES
    return AGENT_RUN_ERROR_FAILURE_CLASS if answered else AGENT_REQUEST_FAILED_FAILURE_CLASS


def _class_at_origin(cause: Mapping[str, Any] | None) -> str | None:
    """The kind of what began behind the server that answered: it says what can be done about it."""
    if cause is None:
        return None
    if cause.get("kind") in FAILURE_RULES:
        return str(cause["kind"])
    return PROVIDER_UNAVAILABLE if cause.get("status") in _DOWN_STATUSES else None


def pressure_behind(error: BaseException) -> float | None:
    """For how many seconds a failed request's peer, or one behind it, wants to be left alone; None if nobody does."""
    from nemo_gym.schema.backend_answers import retry_after_seconds

    cause = _cause_of(error) or {}
    if http_status_of(error) in _PRESSED_STATUSES or cause.get("status") in _PRESSED_STATUSES:
        return retry_after_seconds(getattr(error, "headers", None)) or 0.0
    return None


def _ran_out_of_time(error: BaseException, status: int | None) -> bool:
    """Whether the rollout's deadline passed, here or at the server that says so."""
    from nemo_gym.serve.deadline import DeadlineExceededError, is_over

    if status is None:
        return isinstance(error, DeadlineExceededError) or (isinstance(error, TimeoutError) and is_over())
    cause = _cause_of(error) if status == 504 else None
    return cause is not None and cause.get("kind") == TRANSPORT_TIMEOUT


def http_status_of(error: BaseException) -> int | None:
    """The status a server answered with, None when none did."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _readable(content: bytes | str) -> str:
    text = content[:_BODY_BYTES].decode("utf-8", "replace") if isinstance(content, bytes) else content
    return text if len(text) <= _BODY_CHARACTERS else text[:_BODY_CHARACTERS] + "…"


def describe(result: Mapping[str, Any], limit: int = 200) -> str:
    """A failure in one short line: what began it, else its message, else its type."""
    cause = result.get(NG_FAILURE_CAUSE_KEY)
    began = _beginning(cause) if isinstance(cause, Mapping) else None
    text = (
        began
        or result.get(NG_FAILURE_MESSAGE_KEY)
        or result.get("error_message")
        or result.get(NG_FAILURE_TYPE_KEY)
        or ""
    )
    one_line = " ".join(str(text).split())
    return one_line if len(one_line) <= limit else one_line[:limit] + "…"


def _beginning(cause: Mapping[str, Any]) -> str:
    server, message = str(cause.get("server")), str(cause.get("message"))
    return message if message.startswith(f"{server}: ") else f"{server}: {message}"


_RETRYABLE_TIMEOUTS = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})


def is_terminal_failure(record: Mapping[str, Any], *, retry_terminal_timeouts: bool = False) -> bool:
    """Whether resume must leave a failed rollout alone."""
    if retry_terminal_timeouts:
        failure_class = failure_class_of(record)
        if failure_class in _RETRYABLE_TIMEOUTS:
            return False
        if failure_class == "skipped":
            return True
    return bool(record.get(NG_TERMINAL_KEY))
