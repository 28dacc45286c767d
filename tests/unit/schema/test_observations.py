"""Observations, trajectories, and joining them with captured calls."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nemo_gym import rollout_observability as ro
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    ToolCallObservation,
    TrajectoryRecord,
    join_model_call_observations,
)
from nemo_gym.schema.server_refs import ModelServerRef

POLICY = {"type": "responses_api_models", "name": "policy_model"}


@dataclass
class Call:
    """A captured call, as capture records it."""

    call_index: int
    model_call_id: str | None = None
    response_id: str | None = None
    client_session_id: str | None = None
    model_ref: Any = None


def policy() -> ModelServerRef:
    return ModelServerRef.model_validate(POLICY)


def invocation(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"kind": "agent_invocation", "invocation_id": name, **fields}


def bundle(*records: dict[str, Any], **fields: Any) -> AgentObservationBundle:
    return AgentObservationBundle.model_validate({"source": "test", "records": list(records), **fields})


def gaps(found: AgentObservationBundle) -> list[tuple[str, str | None, str | None]]:
    return [(gap.code, gap.invocation_id, gap.detail) for gap in found.gaps]


def calls_of(found: AgentObservationBundle) -> dict[str, list[str | None]]:
    records = (record for record in found.records if isinstance(record, AgentInvocation))
    return {record.invocation_id: [ref.model_call_id for ref in record.model_calls] for record in records}


@pytest.mark.parametrize("reference", [{"model_call_id": "c"}, {"model_ref": POLICY, "response_id": "r"}])
def test_a_reference_that_can_be_looked_up(reference: dict[str, Any]) -> None:
    assert ModelCallRef.model_validate(reference).model_dump(exclude_unset=True) == reference


@pytest.mark.parametrize("reference", [{}, {"model_ref": POLICY}, {"response_id": "r"}])
def test_a_reference_that_cannot(reference: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="model_call_id"):
        ModelCallRef.model_validate(reference)


def test_a_server_reference_of_another_class_is_read() -> None:
    class OtherRef(BaseModel):
        type: str
        name: str

    found = ModelCallRef.model_validate({"model_ref": OtherRef.model_validate(POLICY), "response_id": "r"})

    assert found.model_ref == policy()


def test_observations_are_strict_when_made_and_when_changed() -> None:
    call = ToolCallObservation(invocation_id="a", tool_call_id="t", started_at=2.0, completed_at=2.0)

    with pytest.raises(ValidationError):
        ToolCallObservation.model_validate({"invocation_id": "a", "tool_call_id": "t", "bogus": 1})
    with pytest.raises(ValidationError):
        call.duration_ms = -1
    with pytest.raises(ValidationError, match="before"):
        ToolCallObservation(invocation_id="a", tool_call_id="t", started_at=2.0, completed_at=1.0)


def test_records_are_told_apart_by_kind() -> None:
    found = bundle(
        invocation(conversation=[{"role": "user", "content": "q"}]),
        {"kind": "tool_call", "invocation_id": "a", "tool_call_id": "t"},
        {"kind": "sandbox", "role": "agent"},
        {"kind": "context_compaction", "invocation_id": "a"},
    )

    assert [type(record).__name__ for record in found.records] == [
        "AgentInvocation",
        "ToolCallObservation",
        "SandboxObservation",
        "ContextCompactionObservation",
    ]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([invocation("a"), invocation("a")], "twice"),
        ([invocation("a", parent_invocation_id="a")], "ancestor"),
        (
            [
                invocation("a", parent_invocation_id="b"),
                invocation("b", parent_invocation_id="c"),
                invocation("c", parent_invocation_id="a"),
            ],
            "ancestor",
        ),
    ],
)
def test_invocations_form_a_tree(records: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        bundle(*records)
    with pytest.raises(ValidationError, match=message):
        TrajectoryRecord.model_validate({"task_id": "t", "rollout_id": "r", "invocations": records})


def test_an_absent_parent_is_fine() -> None:
    assert bundle(invocation("a", parent_invocation_id="gone"), invocation("b", parent_invocation_id="a"))


TURN: dict[str, Any] = {
    "invocation_id": "a",
    "task_id": "t",
    "rollout_id": "r",
    "turn_no": 1,
    "timestamp": 0.0,
    "step_count": 0,
}


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": [TURN, TURN]},
        {"turns": [{**TURN, "rollout_id": "other"}]},
        {"turns": [{**TURN, "task_id": "other"}]},
        {"turns": [{**TURN, "turn_no": 0}]},
        {"model_calls": [{"model_call_id": "c"}, {"model_call_id": "c"}]},
    ],
)
def test_a_trajectory_is_consistent(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TrajectoryRecord.model_validate({"task_id": "t", "rollout_id": "r", **fields})


def test_a_trajectory_may_have_calls_without_id_and_turns_of_several_invocations() -> None:
    turns = [TURN, {**TURN, "turn_no": 2}, {**TURN, "invocation_id": "b"}]
    found = TrajectoryRecord.model_validate(
        {"task_id": "t", "rollout_id": "r", "turns": turns, "model_calls": [{}, {"response_metadata": {"model": "m"}}]}
    )

    assert found.schema_version == "1.0"
    assert found.model_calls[1].response_metadata.model == "m"
    assert found.model_calls[0].token_stats.total_tokens is None


def test_calls_of_a_session_are_adopted_by_the_invocation_of_that_name() -> None:
    given = bundle(invocation("a", model_calls=[{"model_call_id": "c1"}]), invocation("b"))
    calls = [
        Call(0, "c1", "r1", "a", policy()),
        Call(1, "c2", "r2", "a", policy()),
        Call(2, "c3", "r3", "b", policy()),
    ]

    found = join_model_call_observations(given, calls)

    assert calls_of(found) == {"a": ["c1", "c2"], "b": ["c3"]}
    assert gaps(found) == []
    assert calls_of(given) == {"a": ["c1"], "b": []}


def test_references_are_completed_by_call_id_or_by_answer() -> None:
    given = bundle(
        invocation("a", model_calls=[{"model_call_id": "c1"}, {"model_ref": POLICY, "response_id": "r2"}]),
    )

    found = join_model_call_observations(given, [Call(0, "c1", "r1"), Call(1, "c2", "r2", None, policy())])

    record: Any = found.records[0]
    assert [ref.model_dump() for ref in record.model_calls] == [
        {"model_call_id": "c1", "model_ref": None, "response_id": "r1"},
        {"model_call_id": "c2", "model_ref": POLICY, "response_id": "r2"},
    ]
    assert gaps(found) == []


@pytest.mark.parametrize(
    "reference",
    [
        {"model_call_id": "nope"},
        {"model_call_id": "c1", "response_id": "other"},
        {"model_call_id": "c1", "model_ref": {**POLICY, "name": "other"}},
        {"model_ref": {**POLICY, "name": "other"}, "response_id": "r1"},
    ],
)
def test_a_reference_nothing_matches_is_kept_with_a_gap(reference: dict[str, Any]) -> None:
    given = bundle(invocation("a", model_calls=[reference]))

    found = join_model_call_observations(given, [Call(0, "c1", "r1", None, policy())])

    record: Any = found.records[0]
    assert [ref.model_dump(exclude_unset=True) for ref in record.model_calls] == [reference]
    assert [code for code, *_ in gaps(found)] == ["model_call_reference_unmatched", "model_call_ownership_unavailable"]
    assert gaps(found)[1] == ("model_call_ownership_unavailable", None, "capture:c1:call_index=0")


def test_a_reference_that_means_several_calls_owns_none() -> None:
    given = bundle(invocation("a", model_calls=[{"model_ref": POLICY, "response_id": "r"}]))

    found = join_model_call_observations(
        given, [Call(0, "c1", "r", None, policy()), Call(1, "c2", "r", None, policy())]
    )

    assert [code for code, *_ in gaps(found)] == [
        "model_call_reference_ambiguous",
        "model_call_ownership_unavailable",
        "model_call_ownership_unavailable",
    ]


def test_a_call_has_one_owner() -> None:
    given = bundle(
        invocation("a", model_calls=[{"model_call_id": "c1"}, {"model_call_id": "c1", "response_id": "r1"}]),
        invocation("b", model_calls=[{"model_call_id": "c1"}]),
    )

    found = join_model_call_observations(given, [Call(0, "c1", "r1")])

    assert calls_of(found) == {"a": ["c1"], "b": ["c1"]}
    assert gaps(found) == [("model_call_reference_conflict", "b", "model_calls:c1")]


def compaction(**fields: Any) -> dict[str, Any]:
    return {"kind": "context_compaction", "invocation_id": "a", **fields}


def test_compactions_refer_to_calls_of_their_own_invocation() -> None:
    given = bundle(
        compaction(
            model_calls=[{"model_call_id": "c1"}, {"model_call_id": "c2"}, {"model_call_id": "c3"}],
            before_model_call={"model_call_id": "c1"},
            after_model_call={"model_call_id": "gone"},
        ),
        invocation("a", model_calls=[{"model_call_id": "c1"}]),
        invocation("b", model_calls=[{"model_call_id": "c2"}]),
    )

    found = join_model_call_observations(given, [Call(0, "c1", "r1"), Call(1, "c2", "r2"), Call(2, "c3", "r3")])

    record = found.records[0]
    assert isinstance(record, ContextCompactionObservation)
    assert record.model_calls[0].response_id == "r1"
    assert record.before_model_call is not None and record.before_model_call.response_id == "r1"
    assert gaps(found) == [
        ("model_call_reference_conflict", "a", "model_calls:c2"),
        ("model_call_ownership_unavailable", "a", "model_calls:c3"),
        ("model_call_reference_unmatched", "a", "after_model_call:gone"),
        ("model_call_ownership_unavailable", None, "capture:c3:call_index=2"),
    ]


def test_joining_again_replaces_the_gaps_of_the_first_time() -> None:
    other = ObservationGap(code="conversation_unavailable")
    given = bundle(invocation("a", model_calls=[{"model_call_id": "c1"}]), gaps=[other.model_dump()])

    first = join_model_call_observations(given, [])
    second = join_model_call_observations(first, [Call(0, "c1")])

    assert [code for code, *_ in gaps(first)] == ["conversation_unavailable", "model_call_reference_unmatched"]
    assert [code for code, *_ in gaps(second)] == ["conversation_unavailable"]


def test_equal_gaps_are_told_once() -> None:
    given = bundle(compaction(model_calls=[{"model_call_id": "x"}, {"model_call_id": "x"}]), invocation("a"))

    assert len(join_model_call_observations(given, []).gaps) == 1


def test_a_call_nothing_can_refer_to_is_not_adopted() -> None:
    found = join_model_call_observations(bundle(invocation("a")), [Call(4, None, "r", "a")])

    assert calls_of(found) == {"a": []}
    assert gaps(found) == [("model_call_ownership_unavailable", None, "capture:None:call_index=4")]


def test_an_episode_holds_answer_and_observations() -> None:
    found = bundle()

    assert ro.AgentEpisode(response="answer", observations=found).observations is found  # type: ignore[arg-type]
