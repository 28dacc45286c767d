"""Joining what an agent observed with the model calls that were captured. Ownership is never guessed."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from nemo_gym.schema.observations import (
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
)

UNMATCHED = "model_call_reference_unmatched"
AMBIGUOUS = "model_call_reference_ambiguous"
CONFLICT = "model_call_reference_conflict"
UNOWNED = "model_call_ownership_unavailable"
JOIN_GAP_CODES = frozenset({UNMATCHED, AMBIGUOUS, CONFLICT, UNOWNED})


class CapturedCall(Protocol):
    """The identity of one captured model call."""

    @property
    def model_call_id(self) -> str | None: ...
    @property
    def response_id(self) -> str | None: ...
    @property
    def client_session_id(self) -> str | None: ...
    @property
    def call_index(self) -> int: ...
    @property
    def model_ref(self) -> Any: ...


def _server(model_ref: Any) -> tuple[str, str] | None:
    return None if model_ref is None else (model_ref.type, model_ref.name)


def _canonical(call: CapturedCall) -> ModelCallRef | None:
    """The full reference to a call; None if it can't be looked up by anything."""
    if call.model_call_id is None and (call.model_ref is None or call.response_id is None):
        return None
    return ModelCallRef(model_call_id=call.model_call_id, model_ref=call.model_ref, response_id=call.response_id)


def _matches(reference: ModelCallRef, call: CapturedCall) -> bool:
    """Every field the reference gives must be the call's."""
    pairs = (
        (reference.model_call_id, call.model_call_id),
        (_server(reference.model_ref), _server(call.model_ref)),
        (reference.response_id, call.response_id),
    )
    return all(given is None or given == actual for given, actual in pairs)


def _name(reference: ModelCallRef) -> str:
    return reference.model_call_id or reference.response_id or "?"


class _Join:
    def __init__(self, bundle: AgentObservationBundle, calls: Iterable[CapturedCall]) -> None:
        self.calls = [(call, _canonical(call)) for call in calls]
        self.by_id: dict[str | None, list[int]] = {}
        self.by_answer: dict[tuple[Any, str | None], list[int]] = {}
        self.by_session: dict[str | None, list[int]] = {}
        for index, (call, _) in enumerate(self.calls):
            self.by_id.setdefault(call.model_call_id, []).append(index)
            self.by_answer.setdefault((_server(call.model_ref), call.response_id), []).append(index)
            self.by_session.setdefault(call.client_session_id, []).append(index)
        self.owners: dict[int, str] = {}
        self.gaps = [gap for gap in bundle.gaps if gap.code not in JOIN_GAP_CODES]

    def gap(self, code: str, invocation_id: str | None, detail: str) -> None:
        self.gaps.append(ObservationGap(code=code, invocation_id=invocation_id, detail=detail))

    def matching(self, reference: ModelCallRef) -> list[int]:
        """The indices of all calls a reference could mean."""
        if reference.model_call_id is not None:
            candidates = self.by_id.get(reference.model_call_id, [])
        else:
            candidates = self.by_answer.get((_server(reference.model_ref), reference.response_id), [])
        return [index for index in candidates if _matches(reference, self.calls[index][0])]

    def find(self, reference: ModelCallRef, invocation_id: str, place: str) -> int | None:
        """The index of the one call a reference means; a gap if none or several."""
        found = self.matching(reference)
        if len(found) != 1:
            self.gap(AMBIGUOUS if found else UNMATCHED, invocation_id, f"{place}:{_name(reference)}")
            return None
        return found[0]

    def adopt(self, invocation: AgentInvocation) -> None:
        """References to calls made under the invocation's id, where it has none yet."""
        known = {index for reference in invocation.model_calls for index in self.matching(reference)}
        for index in self.by_session.get(invocation.invocation_id, []):
            if index not in known and self.calls[index][1] is not None:
                invocation.model_calls.append(self._reference(index))

    def own(self, invocation: AgentInvocation) -> None:
        """Resolves an invocation's references; the first to claim a call owns it."""
        resolved: list[ModelCallRef] = []
        for reference in invocation.model_calls:
            index = self.find(reference, invocation.invocation_id, "model_calls")
            if index is None:
                resolved.append(reference)
                continue
            owner = self.owners.setdefault(index, invocation.invocation_id)
            if owner != invocation.invocation_id:
                self.gap(CONFLICT, invocation.invocation_id, f"model_calls:{_name(reference)}")
                resolved.append(reference)
            elif (canonical := self._reference(index)) not in resolved:
                resolved.append(canonical)
        invocation.model_calls = resolved

    def check(self, compaction: ContextCompactionObservation) -> None:
        """Resolves a compaction's references, which must be to calls of its own invocation."""
        compaction.model_calls = [self._checked(ref, compaction, "model_calls") for ref in compaction.model_calls]
        if compaction.before_model_call is not None:
            before = self._checked(compaction.before_model_call, compaction, "before_model_call")
            compaction.before_model_call = before
        if compaction.after_model_call is not None:
            after = self._checked(compaction.after_model_call, compaction, "after_model_call")
            compaction.after_model_call = after

    def _checked(self, ref: ModelCallRef, compaction: ContextCompactionObservation, place: str) -> ModelCallRef:
        index = self.find(ref, compaction.invocation_id, place)
        if index is None:
            return ref
        owner = self.owners.get(index)
        if owner != compaction.invocation_id:
            code = UNOWNED if owner is None else CONFLICT
            self.gap(code, compaction.invocation_id, f"{place}:{_name(ref)}")
            return ref
        return self._reference(index)

    def _reference(self, index: int) -> ModelCallRef:
        canonical = self.calls[index][1]
        assert canonical is not None, "a reference only matches what can be referred to"
        return canonical.model_copy(deep=True)

    def unowned(self) -> None:
        """A gap for every captured call that nobody claims."""
        for index, (call, _) in enumerate(self.calls):
            if index not in self.owners:
                self.gap(UNOWNED, None, f"capture:{call.model_call_id}:call_index={call.call_index}")

    def distinct_gaps(self) -> Iterator[ObservationGap]:
        seen: set[tuple[str, str | None, str | None]] = set()
        for gap in self.gaps:
            key = (gap.code, gap.invocation_id, gap.detail)
            if key not in seen:
                seen.add(key)
                yield gap


def join_model_call_observations(
    bundle: AgentObservationBundle, calls: Iterable[CapturedCall]
) -> AgentObservationBundle:
    """A copy of the bundle whose model call references are complete, with a gap for each that can't be.

    A captured call belongs to the invocation whose id it was made under (`client_session_id`) or which refers to it,
    by call id or by model server and response id.
    """
    joined = bundle.model_copy(deep=True)
    join = _Join(joined, list(calls))
    invocations = [record for record in joined.records if isinstance(record, AgentInvocation)]
    for invocation in invocations:
        join.adopt(invocation)
    for invocation in invocations:
        join.own(invocation)
    for record in joined.records:
        if isinstance(record, ContextCompactionObservation):
            join.check(record)
    join.unowned()
    joined.gaps = list(join.distinct_gaps())
    return joined
