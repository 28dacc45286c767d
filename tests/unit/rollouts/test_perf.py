from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.rollout_collection import _attach_ng_perf

REF = {"type": "responses_api_models", "name": "policy"}


def call(name: str, **stats: int) -> dict[str, Any]:
    metadata = {"response_id": f"resp-{name}", "model_ref": REF}
    return {"model_call_id": name, "response_metadata": metadata, "token_stats": stats}


def invocation(name: str, *references: Any) -> dict[str, Any]:
    return {"invocation_id": name, "model_calls": list(references)}


def perf(trajectory: Any, latency: float | None = None) -> Any:
    result = {"ng_trajectory": trajectory}
    _attach_ng_perf(result, observability_enabled=True, rollout_latency_ms=latency)
    return result.get("ng_perf")


def test_it_sums_over_the_calls_that_invocations_own() -> None:
    trajectory = {
        "invocations": [
            invocation("a", {"model_call_id": "m1"}, {"model_ref": REF, "response_id": "resp-m2"}),
            invocation("b", {"model_call_id": "m1"}, {"model_call_id": "nobody"}),
        ],
        "turns": [{"invocation_id": "a"}, {"invocation_id": "a"}, {"invocation_id": "a"}, {"invocation_id": "x"}],
        "tool_calls": [{"invocation_id": "a"}, {"invocation_id": "b"}, {"invocation_id": "x"}],
        "model_calls": [
            call("m1", prompt_tokens=10, completion_tokens=1, cached_tokens=4),
            call("m2", prompt_tokens=20),
            call("m3", prompt_tokens=1000),
        ],
    }
    assert perf(trajectory, 12.5) == {
        "num_turns": 4,
        "num_tool_calls": 2,
        "token_observability_coverage": 0.5,
        "prompt_tokens": 30,
        "cached_prompt_tokens": 4,
        "completion_tokens": 1,
        "total_latency_ms": 12.5,
    }


def test_without_turns_the_owned_calls_count() -> None:
    calls = [call("m1"), call("m2"), call("m3"), call("m3")]
    owned = invocation("a", {"model_call_id": "m1"}, {"model_call_id": "m2"}, {"model_call_id": "m3"})
    assert perf({"invocations": [owned], "model_calls": calls}) == {
        "num_turns": 2,
        "num_tool_calls": 0,
        "token_observability_coverage": 1.0,
    }


def test_coverage_never_exceeds_one() -> None:
    owned = invocation("a", {"model_call_id": "m1"}, {"model_call_id": "m2"})
    trajectory = {"invocations": [owned], "turns": [{"invocation_id": "a"}], "model_calls": [call("m1"), call("m2")]}
    assert perf(trajectory)["token_observability_coverage"] == 1.0


@pytest.mark.parametrize("trajectory", [None, {}, {"invocations": []}, "nonsense"])
def test_no_invocation_no_summary(trajectory: Any) -> None:
    assert perf(trajectory, 1.0) is None


def test_only_with_observability() -> None:
    result: dict[str, Any] = {"ng_trajectory": {"invocations": [invocation("a")]}}
    _attach_ng_perf(result, observability_enabled=False, rollout_latency_ms=1.0)
    assert "ng_perf" not in result
