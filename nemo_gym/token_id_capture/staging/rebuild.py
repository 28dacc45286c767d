"""From a receipt and the staged calls it names to the one sequence that is trained on, with every hash checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym.token_id_capture.errors import TokenCaptureError
from nemo_gym.token_id_capture.staging.digests import (
    DIGEST_VERSION,
    EXTRAS_DIGEST_VERSION,
    SCHEMA_VERSION,
    compute_chain_hash,
    hash_token_ids,
)
from nemo_gym.token_id_capture.staging.records import (
    CallRecord,
    RolloutReceipt,
    StagedCallBaseSnapshot,
    integrity_problem,
)

_COMPARED = (
    "parent_call_id",
    "mode",
    "prev_len",
    "delta_len",
    "cum_len",
    "weight_version",
    "digest",
    "extras_digest",
    "chain_hash",
    "cumulative_hash",
)


class ReceiptVerificationError(TokenCaptureError, ValueError):
    """A receipt and its staged calls don't fit together; `code` says in which way."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[type[ReceiptVerificationError], tuple[str, str]]:
        return type(self), (self.code, self.detail)


@dataclass(frozen=True)
class LinearizedRow:
    """One sequence: its tokens, 1.0 where they are the model's own, and their log-probabilities (0.0 elsewhere).

    `model_call_ids` and `weight_versions` are those of the calls from the first to the last.
    """

    rollout_id: str
    reward: float | None
    token_ids: list[int]
    token_mask: list[float]
    generation_log_probs: list[float]
    model_call_ids: list[str]
    weight_versions: list[int]

    @property
    def terminal_model_call_id(self) -> str:
        return self.model_call_ids[-1]


def verify_and_linearize(receipt: RolloutReceipt, snapshots: Sequence[StagedCallBaseSnapshot]) -> LinearizedRow:
    """The sequence from the rollout's first call to its terminal one.

    `snapshots` are the staged calls of the manifest's rows, in its order. Raises ReceiptVerificationError.
    """
    _check_receipt(receipt)
    _check_rows(receipt.manifest)
    _check_pairing(receipt, snapshots)
    for row, snapshot in zip(receipt.manifest, snapshots, strict=True):
        _check_snapshot(row, snapshot)
    by_id = {snapshot.model_call_id: snapshot for snapshot in snapshots}
    _check_lineage(by_id)
    chain = _chain_to(receipt.terminal_model_call_id, by_id)
    return _linearized(receipt, chain)


def _fail(code: str, detail: str) -> ReceiptVerificationError:
    return ReceiptVerificationError(code, detail)


def _check_versions(record: RolloutReceipt | StagedCallBaseSnapshot | CallRecord, name: str) -> None:
    for code, found, known in (
        ("unsupported_schema", record.schema_version, SCHEMA_VERSION),
        ("unsupported_digest", record.digest_version, DIGEST_VERSION),
        ("unsupported_extras_digest", record.extras_digest_version, EXTRAS_DIGEST_VERSION),
    ):
        if found != known:
            raise _fail(code, f"{name} has version {found}, known is {known}")


def _check_receipt(receipt: RolloutReceipt) -> None:
    _check_versions(receipt, f"the receipt of rollout {receipt.rollout_id}")
    if receipt.failure_reason is not None:
        raise _fail("rollout_failed", receipt.failure_reason)
    if receipt.capture_poisoned:
        raise _fail("capture_poisoned", f"tokens of rollout {receipt.rollout_id} are missing")
    if not receipt.manifest:
        raise _fail("empty_manifest", f"rollout {receipt.rollout_id} has no calls")


def _check_rows(manifest: Sequence[CallRecord]) -> None:
    for row in manifest:
        _check_versions(row, f"the row of call {row.model_call_id}")
    if repeated := _first_repeated([row.model_call_id for row in manifest]):
        raise _fail("duplicate_manifest_row", f"call {repeated} has two rows")
    if repeated := _first_repeated([row.staging_key for row in manifest]):
        raise _fail("duplicate_staging_key", f"two rows have the key {repeated}")


def _check_pairing(receipt: RolloutReceipt, snapshots: Sequence[StagedCallBaseSnapshot]) -> None:
    if len(snapshots) != len(receipt.manifest):
        raise _fail("row_count_mismatch", f"{len(receipt.manifest)} rows, {len(snapshots)} snapshots")
    ids = [snapshot.model_call_id for snapshot in snapshots]
    if repeated := _first_repeated(ids):
        raise _fail("duplicate_snapshot", f"call {repeated} came twice")
    expected = [row.model_call_id for row in receipt.manifest]
    if set(ids) != set(expected) or {snapshot.rollout_id for snapshot in snapshots} != {receipt.rollout_id}:
        raise _fail("snapshot_identity_mismatch", "the snapshots are not those of the manifest's calls")
    if ids != expected:
        raise _fail("snapshot_order_mismatch", "the snapshots are not in the manifest's order")


def _first_repeated(values: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def _check_snapshot(row: CallRecord, snapshot: StagedCallBaseSnapshot) -> None:
    name = f"call {snapshot.model_call_id}"
    _check_versions(snapshot, name)
    for field in _COMPARED:
        if getattr(snapshot, field) != getattr(row, field):
            raise _fail(f"wrong_{field}", f"{name} differs from its row in the manifest")
    try:
        problem = integrity_problem(snapshot)
        computed = None if problem else snapshot.computed_digest()
    except (TypeError, ValueError) as error:
        problem, computed = str(error), None
    if problem:
        raise _fail("invalid_snapshot", f"{name}: {problem}")
    if computed != snapshot.digest:
        raise _fail("corrupt_digest", f"{name} does not come to its digest")


def _check_lineage(by_id: dict[str, StagedCallBaseSnapshot]) -> None:
    for snapshot in by_id.values():
        if snapshot.parent_call_id is None:
            continue
        parent = by_id.get(snapshot.parent_call_id)
        if parent is None:
            raise _fail("missing_parent", f"call {snapshot.model_call_id} continues {snapshot.parent_call_id}")
        if snapshot.prev_len != parent.cum_len:
            raise _fail("parent_length_mismatch", f"call {snapshot.model_call_id} continues {snapshot.prev_len} tokens")


def _chain_to(terminal: str | None, by_id: dict[str, StagedCallBaseSnapshot]) -> list[StagedCallBaseSnapshot]:
    """The calls from the root to the terminal one. Cycles anywhere are found first."""
    for call_id in by_id:
        _path_to(call_id, by_id)
    if terminal is None or terminal not in by_id:
        raise _fail("missing_terminal", f"{terminal} is not among the calls")
    return _path_to(terminal, by_id)


def _path_to(call_id: str, by_id: dict[str, StagedCallBaseSnapshot]) -> list[StagedCallBaseSnapshot]:
    path: dict[str, StagedCallBaseSnapshot] = {}
    current: str | None = call_id
    while current is not None:
        if current in path:
            raise _fail("lineage_cycle", f"call {current} continues itself")
        path[current] = by_id[current]
        current = by_id[current].parent_call_id
    return list(reversed(path.values()))


def _linearized(receipt: RolloutReceipt, chain: list[StagedCallBaseSnapshot]) -> LinearizedRow:
    row = LinearizedRow(receipt.rollout_id, receipt.reward, [], [], [], [], [])
    parent_hash: str | None = None
    for call in chain:
        _check_mask(call)
        parent_hash = compute_chain_hash(parent_hash, call.token_ids_delta)
        if parent_hash != call.chain_hash:
            raise _fail("chain_hash_mismatch", f"call {call.model_call_id} does not follow from the calls before it")
        row.token_ids.extend(call.token_ids_delta)
        row.token_mask.extend(call.token_mask_delta)
        row.generation_log_probs.extend(call.generation_log_probs_delta)
        row.model_call_ids.append(call.model_call_id)
        row.weight_versions.append(call.weight_version)
    if not row.token_ids:
        raise _fail("empty_training_row", f"rollout {receipt.rollout_id} has no tokens")
    if hash_token_ids(row.token_ids) != chain[-1].cumulative_hash:
        raise _fail("cumulative_hash_mismatch", f"the tokens up to call {chain[-1].model_call_id} are not those staged")
    return row


def _check_mask(call: StagedCallBaseSnapshot) -> None:
    mask = call.token_mask_delta
    if mask != sorted(mask):
        raise _fail("invalid_mask_order", f"call {call.model_call_id} has prompt tokens after generated ones")
    if 1.0 not in mask:
        raise _fail("empty_generation", f"call {call.model_call_id} generated nothing")
