"""What a rollout cost: turns, tool calls, tokens and time, as far as its trajectory tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym.rollouts.keys import NG_PERF_KEY, NG_TRAJECTORY_KEY

_TOKENS = {
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "cached_tokens",
    "completion_tokens": "completion_tokens",
    "reasoning_tokens": "reasoning_tokens",
}


def attach_perf(
    result: dict[str, Any], *, observability_enabled: bool, rollout_latency_ms: float | None = None
) -> None:
    """Give a result whose trajectory has an invocation its `ng_perf`; latency is the wall time of `/run`."""
    trajectory = result.get(NG_TRAJECTORY_KEY)
    if not observability_enabled or not isinstance(trajectory, Mapping):
        return
    perf = perf_of(trajectory, rollout_latency_ms)
    if perf is not None:
        result[NG_PERF_KEY] = perf


def perf_of(trajectory: Mapping[str, Any], rollout_latency_ms: float | None) -> dict[str, Any] | None:
    """The summary of a dumped trajectory, None when it has no invocation. Token counts nobody reported are absent."""
    owned_by = _owned_calls(trajectory)
    if not owned_by:
        return None
    turns = dict.fromkeys(owned_by, 0)
    for turn in _objects(trajectory, "turns"):
        if turn.get("invocation_id") in turns:
            turns[turn["invocation_id"]] += 1
    owned = [call for calls in owned_by.values() for call in calls]
    num_turns = sum(count or len(owned_by[invocation_id]) or 1 for invocation_id, count in turns.items())
    perf: dict[str, Any] = {
        "num_turns": num_turns,
        "num_tool_calls": sum(call.get("invocation_id") in turns for call in _objects(trajectory, "tool_calls")),
        "token_observability_coverage": min(1.0, len(owned) / num_turns),
    }
    for name, reported_as in _TOKENS.items():
        counts = [count for call in owned if (count := _stats(call).get(reported_as)) is not None]
        if counts:
            perf[name] = sum(counts)
    if rollout_latency_ms is not None:
        perf["total_latency_ms"] = rollout_latency_ms
    return perf


def _owned_calls(trajectory: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The model calls of each invocation: those that exactly one call fits, each given to the first that names it."""
    calls = list(_objects(trajectory, "model_calls"))
    by_id: dict[Any, list[int]] = {}
    by_answer: dict[Any, list[int]] = {}
    for place, call in enumerate(calls):
        metadata = call.get("response_metadata") or {}
        by_id.setdefault(call.get("model_call_id"), []).append(place)
        by_answer.setdefault((_server(metadata), metadata.get("response_id")), []).append(place)
    taken: set[int] = set()
    owned: dict[str, list[Mapping[str, Any]]] = {}
    for invocation in _objects(trajectory, "invocations"):
        mine = owned.setdefault(invocation["invocation_id"], [])
        for reference in _objects(invocation, "model_calls"):
            if reference.get("model_call_id") is not None:
                found = by_id.get(reference["model_call_id"], [])
            else:
                found = by_answer.get((_server(reference), reference.get("response_id")), [])
            if len(found) == 1 and found[0] not in taken:
                taken.add(found[0])
                mine.append(calls[found[0]])
    return owned


def _server(source: Mapping[str, Any]) -> str | None:
    reference = source.get("model_ref")
    return reference.get("name") if isinstance(reference, Mapping) else None


def _stats(call: Mapping[str, Any]) -> Mapping[str, Any]:
    stats = call.get("token_stats")
    return stats if isinstance(stats, Mapping) else {}


def _objects(source: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    values = source.get(name)
    return (value for value in values if isinstance(value, Mapping)) if isinstance(values, list) else iter(())
