"""The checks of one rollout. Each gives what is wrong; that it can run at all has been seen to before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nemo_gym.health.models import Finding
from nemo_gym.health.payloads import has_reasoning, has_text, has_tool_call
from nemo_gym.health.view import RolloutView, is_failed, is_successful
from nemo_gym.schema.observation_join import AMBIGUOUS, CONFLICT, UNMATCHED
from nemo_gym.schema.trajectories import TrajectoryModelCall, TrajectoryTurn

_CONFLICTING = (UNMATCHED, AMBIGUOUS, CONFLICT)
_CUT_OFF = frozenset({"length", "max_output_tokens", "max_tokens"})


class CannotTell(Exception):
    """What was recorded doesn't suffice for a check after all."""


def missing_agent_turns(view: RolloutView) -> Iterator[Finding]:
    turns = _turns(view)
    if not any(not _is_hollow(turn) or turn.model_calls for turn in turns):
        yield Finding("rollout_missing_agent_turns", {"turns": len(turns)})


def ended_on_failed_model_call(view: RolloutView) -> Iterator[Finding]:
    for name, calls in view.chains.items():
        if (last := view.last_failed(calls)) is not None:
            detail = {
                "model_ref": name,
                **_failure(last),
                "observed_calls": len(calls),
                "successful_calls": sum(map(is_successful, calls)),
            }
            yield Finding("rollout_ended_on_failed_model_call", detail)


def hollow_turns(view: RolloutView) -> Iterator[Finding]:
    for turn in _turns(view):
        if _is_hollow(turn):
            locator = {"invocation_id": turn.invocation_id, "turn_no": turn.turn_no}
            yield Finding("agent_turn_hollow", {}, locator)


def zero_completion_tokens(view: RolloutView) -> Iterator[Finding]:
    for call in view.owned_calls:
        if call.token_stats.completion_tokens == 0:
            yield Finding("model_call_zero_completion_tokens", _finish(call), _at(call))


def missing_token_counts(view: RolloutView) -> Iterator[Finding]:
    for call in view.owned_calls:
        counts = {"prompt": call.token_stats.prompt_tokens, "completion": call.token_stats.completion_tokens}
        if missing := [name for name, count in counts.items() if count is None]:
            yield Finding("model_call_missing_token_counts", {"missing": missing}, _at(call))


def capture_mismatch(view: RolloutView) -> Iterator[Finding]:
    check = "trajectory_capture_mismatch"
    for reference in view.references:
        count = len(view.matches(reference))
        locator = reference.model_dump(exclude_none=True)
        if count == 0:
            yield Finding(check, {"reason": "missing_captured_call"}, locator)
        elif count > 1:
            yield Finding(check, {"reason": "duplicated_captured_call", "count": count}, locator)
    for gap in view.trajectory.gaps if view.trajectory else ():
        if gap.code in _CONFLICTING:
            detail = {"reason": "conflicting_call_ownership", "gap": gap.code, "detail": gap.detail}
            yield Finding(check, detail, {"invocation_id": gap.invocation_id} if gap.invocation_id else None)


def failed_calls(view: RolloutView) -> Iterator[Finding]:
    last = {id(call) for calls in view.chains.values() if (call := view.last_failed(calls)) is not None}
    for call in view.owned_calls:
        if is_failed(call):
            yield Finding("model_call_failed", {**_failure(call), "terminal": id(call) in last}, _at(call))


def token_count_mismatch(view: RolloutView) -> Iterator[Finding]:
    usage = view.usage or {}
    transcript = {"prompt": usage.get("input_tokens"), "completion": usage.get("output_tokens")}
    if None in transcript.values():
        raise CannotTell
    captured = {
        "prompt": sum(call.token_stats.prompt_tokens or 0 for call in view.bound_calls),
        "completion": sum(call.token_stats.completion_tokens or 0 for call in view.bound_calls),
    }
    if transcript != captured:
        yield Finding("rollout_token_count_mismatch", {"transcript": transcript, "captured": captured})


def runaway_generation(view: RolloutView) -> Iterable[Finding]:
    findings = []
    for call in view.owned_calls:
        if call.response_metadata.finish_reason not in _CUT_OFF:
            continue
        if call.response is None:
            raise CannotTell
        if not has_text(call.response) and not has_tool_call(call.response):
            detail = {**_finish(call), "completion_tokens": call.token_stats.completion_tokens}
            findings.append(Finding("model_call_runaway_generation", detail, _at(call)))
    return findings


def _turns(view: RolloutView) -> list[TrajectoryTurn]:
    return view.trajectory.turns if view.trajectory else []


def _is_hollow(turn: TrajectoryTurn) -> bool:
    says_something = has_text(turn.answer) or has_reasoning(turn.answer) or has_tool_call(turn.answer)
    return not says_something and not _is_filled(turn.reasoning_content)


def _is_filled(reasoning: Any) -> bool:
    return has_text(reasoning) or has_reasoning(reasoning)


def _failure(call: TrajectoryModelCall) -> dict[str, Any]:
    metadata = call.response_metadata
    return {"status": metadata.status_code, "error_category": metadata.error_category}


def _finish(call: TrajectoryModelCall) -> dict[str, Any]:
    return {"finish_reason": call.response_metadata.finish_reason}


def _at(call: TrajectoryModelCall) -> dict[str, Any]:
    return {"model_call_id": call.model_call_id, "response_id": call.response_metadata.response_id}
