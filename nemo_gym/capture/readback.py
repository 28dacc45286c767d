"""Captures read back into rollout records, with a gap for whatever could not be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.capture.exchange import PAYLOAD_OMITTED
from nemo_gym.capture.records import (
    PAYLOAD_FIELDS,
    ModelCallRecord,
    aggregate_model_call_records,
    build_model_call_record,
    records_of,
)
from nemo_gym.capture.store import CaptureStore
from nemo_gym.schema.observations import ObservationGap

CAPTURE_KEY = "ng_model_call_capture"
OBSERVATIONS_KEY = "ng_agent_observations"

NO_RECORDS = "model_call_capture_no_records"
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
PAYLOADS_OMITTED = "model_call_capture_payloads_omitted"
CAPTURE_INCOMPLETE = "model_call_capture_incomplete"
CAPTURE_UNREADABLE = "model_call_capture_unreadable"
JOIN_FAILED = "agent_observation_join_failed"


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """Every call of a rollout. Raises ValueError for a line that can't be read."""
    return [build_model_call_record(exchange, index) for index, exchange in enumerate(store.read(rollout_id))]


def read_available_model_call_records(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    """`(the calls that can be read, the number of damaged lines)`."""
    exchanges, damaged = store.read_available(rollout_id)
    records, foreign = records_of(exchanges)
    return records, damaged + foreign


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> dict[str, Any]:
    """Sums over the calls of a rollout that can be read, None for what no call reports, and `num_calls`."""
    return aggregate_model_call_records(read_available_model_call_records(store, rollout_id)[0])


@dataclass
class Capture:
    """What the folders hold of one rollout, and what they are known to lack."""

    rollout_id: str
    calls: list[ModelCallRecord] = field(default_factory=list)
    gaps: list[ObservationGap] = field(default_factory=list)

    @classmethod
    def read(cls, rollout_id: str, directories: Iterable[Path]) -> Capture:
        """Read what can be read; nothing raises."""
        capture = cls(rollout_id)
        for directory in directories:
            try:
                capture._add(CaptureStore(directory))
            except (OSError, ValueError) as error:
                capture.gap(CAPTURE_UNREADABLE, type(error).__name__)
        if not capture.calls:
            capture.gap(NO_RECORDS)
        return capture

    def gap(self, code: str, detail: str | None = None) -> None:
        """Note that something is missing."""
        self.gaps.append(ObservationGap(code=code, detail=detail))

    def dump(self, *, include_payloads: bool) -> dict[str, Any]:
        """The capture as records carry it."""
        left_out = None if include_payloads else set(PAYLOAD_FIELDS)
        dumped: dict[str, Any] = {
            "rollout_id": self.rollout_id,
            "metrics": aggregate_model_call_records(self.calls),
            "calls": [call.model_dump(mode="json", exclude=left_out) for call in self.calls],
        }
        gaps = [gap.model_dump(exclude_none=True) for gap in self.gaps]
        return {**dumped, "gaps": gaps} if gaps else dumped

    def _add(self, store: CaptureStore) -> None:
        exchanges, damaged = store.read_available(self.rollout_id)
        records, foreign = records_of(exchanges)
        self.calls += records
        if damaged + foreign:
            self.gap(RECORDS_UNREADABLE, f"count={damaged + foreign}")
        if omitted := sum(bool(exchange.get(PAYLOAD_OMITTED)) for _, exchange in exchanges):
            self.gap(PAYLOADS_OMITTED, f"count={omitted}")
        if store.is_incomplete(self.rollout_id):
            self.gap(CAPTURE_INCOMPLETE)


def merge_capture(
    record: dict[str, Any], rollout_id: str, directories: Iterable[Path], *, include_payloads: bool = False
) -> dict[str, Any]:
    """Put the capture of a rollout into its record, and join the record's agent observations with it, in place."""
    capture = Capture.read(rollout_id, directories)
    if record.get(OBSERVATIONS_KEY) is not None:
        try:
            record[OBSERVATIONS_KEY] = _joined(record[OBSERVATIONS_KEY], capture.calls)
        except ValueError as error:
            capture.gap(JOIN_FAILED, type(error).__name__)
    record[CAPTURE_KEY] = capture.dump(include_payloads=include_payloads)
    return record


def clear_captures(rollout_ids: Iterable[str], directories: Iterable[Path]) -> None:
    """Delete what was captured of rollouts that are about to run. Raises OSError where that is refused."""
    stores = [CaptureStore(directory) for directory in directories]
    for rollout_id in rollout_ids:
        for store in stores:
            store.clear(rollout_id)


def _joined(observations: Any, calls: list[ModelCallRecord]) -> dict[str, Any]:
    from nemo_gym.schema.observation_join import join_model_call_observations
    from nemo_gym.schema.observations import AgentObservationBundle

    bundle = AgentObservationBundle.model_validate(observations)
    return join_model_call_observations(bundle, calls).model_dump(mode="json")
