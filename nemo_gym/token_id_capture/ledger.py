"""The token-free rows of staged calls: how they are written, matched against requests, and made a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from nemo_gym.token_id_capture.errors import ConflictingEntryError
from nemo_gym.token_id_capture.lineage_index import LineageNode, index_of
from nemo_gym.token_id_capture.protocols import CaptureLedgerCommit, LineageResolution
from nemo_gym.token_id_capture.records import (
    MISSING_CHAIN_HASH_REASON,
    MISSING_RESPONSE_ID_REASON,
    ParentResolutionStatus,
)
from nemo_gym.token_id_capture.staging.records import (
    INVALID_COMMIT_COORDS_REASON,
    CallRecord,
    ManifestFailure,
    RolloutManifest,
)

CALL, FAILURE = "call", "failure"

Row = dict[str, Any]


def call_row(commit: CaptureLedgerCommit) -> Row:
    """The row of a staged call."""
    fields = asdict(commit)
    coords = fields.pop("coords").model_dump(mode="json")
    return {"kind": CALL, **fields, "coords": coords}


def failure_row(model_call_id: str, reason: str) -> Row:
    """The row of a call whose tokens are lost."""
    return {"kind": FAILURE, "model_call_id": model_call_id, "reason": reason}


def is_new(row: Row, rows: Iterable[Row]) -> bool:
    """Whether a row adds anything. Raises ConflictingEntryError when its call has another row already.

    Of a call that was lost, the first reason stays; it doesn't come back.
    """
    known = [other for other in rows if other["model_call_id"] == row["model_call_id"]]
    if row["kind"] == FAILURE:
        return not any(other["kind"] == FAILURE for other in known)
    for other in known:
        if other["kind"] == CALL and other != row:
            raise ConflictingEntryError(f"Model call {row['model_call_id']} has another row in the ledger already.")
    return not known


def resolve_in_rows(rows: Sequence[Row], request_items: list[dict[str, Any]]) -> LineageResolution:
    """The staged call that a request continues, as coordinates without tokens."""
    lost = {row["model_call_id"] for row in rows if row["kind"] == FAILURE}
    index = index_of(_node(row) for row in rows if row["kind"] == CALL and row["model_call_id"] not in lost)
    parent = index.parent_of(request_items)
    if parent is None:
        return LineageResolution.root()
    if isinstance(parent, str):
        return LineageResolution.unresolved(parent)
    row = parent.ref
    return LineageResolution(
        ParentResolutionStatus.RESOLVED,
        parent_call_id=parent.model_call_id,
        parent_cum_len=parent.cum_len,
        parent_staging_chain=list(row["staging_chain"]),
        parent_chain_hash=row["coords"].get("chain_hash") or "",
    )


def _node(row: Row) -> LineageNode:
    return LineageNode(
        model_call_id=row["model_call_id"],
        fingerprint=row["continuation_fingerprint"],
        fingerprint_version=row["fingerprint_version"],
        context_len=row["continuation_context_len"],
        context_digest=row["continuation_context_digest"],
        digest=row["coords"].get("cumulative_hash") or "",
        cum_len=row["coords"]["cum_len"],
        parent_call_id=row["coords"].get("parent_call_id"),
        ref=row,
    )


def manifest_of(rollout_id: str, rows: Iterable[Row]) -> RolloutManifest:
    """The calls that can be trained on, and the others with the reason why not."""
    manifest = RolloutManifest(rollout_id=rollout_id)
    for row in rows:
        found = _record_or_reason(row)
        if isinstance(found, CallRecord):
            manifest.records.append(found)
        else:
            manifest.failures.append(ManifestFailure(model_call_id=row["model_call_id"], reason=found))
    return manifest


def _record_or_reason(row: Row) -> CallRecord | str:
    if row["kind"] == FAILURE:
        return str(row["reason"])
    if not row.get("response_id"):
        return MISSING_RESPONSE_ID_REASON
    if not row["coords"].get("chain_hash"):
        return MISSING_CHAIN_HASH_REASON
    coords = {key: value for key, value in row["coords"].items() if key != "disposition"}
    own = ("response_id", "admitted_at", "output_fingerprint", "continuation_fingerprint", "fingerprint_version")
    try:
        return CallRecord.model_validate({**coords, **{key: row.get(key) for key in own}})
    except ValidationError:
        return INVALID_COMMIT_COORDS_REASON
