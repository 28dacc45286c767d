"""What travels between model server, inference worker and trainer about a call whose tokens are staged."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, model_validator

from nemo_gym.token_id_capture.records import UNCOMMITTED_CALL_REASON
from nemo_gym.token_id_capture.staging.digests import compute_call_digest, compute_extras_digest

WORKER_MISSING_COMMIT_COORDS_REASON = "worker_response_missing_commit_coordinates"
WORKER_CAPTURE_FAILED_REASON = "worker_capture_failed"
INVALID_COMMIT_COORDS_REASON = "invalid_worker_commit_coordinates"

Identifier: TypeAlias = Annotated[str, Strict(), Field(min_length=1)]
Sha256: TypeAlias = Annotated[str, Strict(), StringConstraints(pattern=r"^[0-9a-f]{64}$")]
NonNegativeInt: TypeAlias = Annotated[int, Strict(), Field(ge=0)]
StrictInt: TypeAlias = Annotated[int, Strict()]
StrictFloat: TypeAlias = Annotated[float, Strict()]
CaptureMode: TypeAlias = Literal["token_in", "text"]
TerminalSelectionMethod: TypeAlias = Literal["declared", "response_id", "content", "heuristic"]

__all__ = [
    "INVALID_COMMIT_COORDS_REASON",
    "UNCOMMITTED_CALL_REASON",
    "WORKER_CAPTURE_FAILED_REASON",
    "WORKER_MISSING_COMMIT_COORDS_REASON",
    "CallRecord",
    "CaptureAdmission",
    "CaptureMode",
    "CommitCoords",
    "ManifestFailure",
    "RolloutManifest",
    "RolloutReceipt",
    "StageResult",
    "StagedCallBaseSnapshot",
    "StagedCallRecord",
    "default_staging_key",
    "integrity_problem",
]


def default_staging_key(rollout_id: str, model_call_id: str) -> str:
    return f"{rollout_id}/{model_call_id}"


class _WireModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[2] = 2


class _DigestWireModel(_WireModel):
    digest_version: Literal[2] = 2
    extras_digest_version: Literal[1] = 1


class CaptureAdmission(_WireModel):
    """What an inference worker is told to stage: which call, and what its prompt has to begin with.

    `token_in` continues a known call of `prev_len` tokens: given as `required_prefix_token_ids`, or as the keys of the
    staged calls that make them up. `text` begins anew.
    """

    rollout_id: Identifier
    model_call_id: Identifier
    parent_call_id: Identifier | None = None
    prev_len: NonNegativeInt = 0
    mode: CaptureMode
    required_prefix_token_ids: list[StrictInt] = Field(default_factory=list)
    staging_chain: list[str] = Field(default_factory=list)
    parent_chain_hash: Sha256 | None = None

    @model_validator(mode="after")
    def _validate_prefix_contract(self) -> Self:
        prefix = self.required_prefix_token_ids
        if self.mode == "text":
            if self.parent_call_id or self.prev_len or prefix or self.staging_chain or self.parent_chain_hash:
                raise ValueError("a call of mode text has no parent and no prefix")
            return self
        if self.parent_call_id is None or self.prev_len == 0:
            raise ValueError("a call of mode token_in needs parent_call_id and prev_len")
        if prefix and len(prefix) != self.prev_len:
            raise ValueError(f"prev_len is {self.prev_len}, but the prefix has {len(prefix)} tokens")
        if not (prefix or self.staging_chain):
            raise ValueError("a call of mode token_in needs required_prefix_token_ids or a staging_chain")
        return self


class StagedCallBaseSnapshot(_DigestWireModel):
    """The tokens that one call added to its parent's, with everything that proves them; without extras.

    `token_mask_delta` is 0.0 for prompt and 1.0 for generated tokens, `generation_log_probs_delta` 0.0 on prompts.
    """

    rollout_id: Identifier
    model_call_id: Identifier
    parent_call_id: Identifier | None = None
    mode: CaptureMode
    prev_len: NonNegativeInt
    delta_len: NonNegativeInt
    cum_len: NonNegativeInt
    weight_version: NonNegativeInt
    digest: Sha256
    token_ids_delta: list[StrictInt]
    token_mask_delta: list[StrictFloat]
    generation_log_probs_delta: list[StrictFloat]
    extras_digest: Sha256 = compute_extras_digest(None)
    chain_hash: Sha256
    cumulative_hash: Sha256

    @property
    def staging_key(self) -> str:
        return default_staging_key(self.rollout_id, self.model_call_id)

    @model_validator(mode="after")
    def _validate_base_integrity(self) -> Self:
        if problem := integrity_problem(self):
            raise ValueError(problem)
        if self.digest != self.computed_digest():
            raise ValueError("digest is not that of the record")
        return self

    def computed_digest(self) -> str:
        """The digest that the record's own fields come to."""
        return compute_call_digest(
            rollout_id=self.rollout_id,
            model_call_id=self.model_call_id,
            parent_call_id=self.parent_call_id,
            mode=self.mode,
            prev_len=self.prev_len,
            delta_len=self.delta_len,
            cum_len=self.cum_len,
            weight_version=self.weight_version,
            token_ids_delta=self.token_ids_delta,
            token_mask_delta=self.token_mask_delta,
            generation_log_probs_delta=self.generation_log_probs_delta,
            extras_digest=self.extras_digest,
            chain_hash=self.chain_hash,
            cumulative_hash=self.cumulative_hash,
        )


def integrity_problem(call: StagedCallBaseSnapshot) -> str | None:
    """What doesn't fit together in a staged call, its digest left aside."""
    lengths = {len(call.token_ids_delta), len(call.token_mask_delta), len(call.generation_log_probs_delta)}
    if lengths != {call.delta_len}:
        return f"delta_len is {call.delta_len}, but the arrays have {sorted(lengths)} entries"
    if call.cum_len != call.prev_len + call.delta_len:
        return "cum_len is not prev_len and delta_len together"
    if any(token < 0 for token in call.token_ids_delta):
        return "token ids must be at least 0"
    if not set(call.token_mask_delta) <= {0.0, 1.0}:
        return "token_mask_delta must hold 0.0 and 1.0 only"
    if not all(map(math.isfinite, call.generation_log_probs_delta)):
        return "generation_log_probs_delta must be finite"
    if call.mode == "text" and (call.parent_call_id is not None or call.prev_len):
        return "a call of mode text has no parent"
    if call.mode == "token_in" and (call.parent_call_id is None or not call.prev_len):
        return "a call of mode token_in needs a parent"
    return None


class StagedCallRecord(StagedCallBaseSnapshot):
    """A staged call as the worker stores it, with what it adds of its own (routed experts for one)."""

    extras: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _validate_extras(self) -> Self:
        if self.extras_digest != compute_extras_digest(self.extras):
            raise ValueError("extras_digest is not that of the extras")
        return self

    def base_snapshot(self) -> StagedCallBaseSnapshot:
        """The record without its extras."""
        return StagedCallBaseSnapshot.model_validate(self.model_dump(exclude={"extras"}))


class StageResult(_WireModel):
    """Whether a record is stored, and under which key; else why not."""

    ok: bool
    staging_key: Identifier | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _validate_result(self) -> Self:
        if self.ok and (self.staging_key is None or self.error is not None):
            raise ValueError("a stored record has a staging_key and no error")
        if not self.ok and (self.staging_key is not None or not self.error):
            raise ValueError("a record that isn't stored has an error and no staging_key")
        return self


class CommitCoords(_DigestWireModel):
    """What the worker tells the model server of a call: where it is staged and what it hashes to, or that it isn't."""

    rollout_id: Identifier
    model_call_id: Identifier
    parent_call_id: Identifier | None = None
    mode: CaptureMode
    disposition: Literal["staged", "capture_failed"]
    staging_key: Identifier | None = None
    prev_len: NonNegativeInt = 0
    delta_len: NonNegativeInt = 0
    cum_len: NonNegativeInt = 0
    weight_version: NonNegativeInt = 0
    digest: Sha256 | None = None
    extras_digest: Sha256 | None = None
    chain_hash: Sha256 | None = None
    cumulative_hash: Sha256 | None = None

    @model_validator(mode="after")
    def _validate_disposition(self) -> Self:
        if self.disposition == "staged":
            needed = ("staging_key", "digest", "extras_digest", "cumulative_hash")
            if missing := [name for name in needed if getattr(self, name) is None]:
                raise ValueError(f"a staged call needs {', '.join(missing)}")
            if self.cum_len != self.prev_len + self.delta_len:
                raise ValueError("cum_len is not prev_len and delta_len together")
        elif self.staging_key is not None:
            raise ValueError("a call that wasn't staged has no staging_key")
        return self


class CallRecord(_DigestWireModel):
    """A token-free row of the model server's ledger: one staged call of a rollout."""

    rollout_id: Identifier
    model_call_id: Identifier
    parent_call_id: Identifier | None = None
    staging_key: Identifier
    mode: CaptureMode
    prev_len: NonNegativeInt
    delta_len: NonNegativeInt
    cum_len: NonNegativeInt
    weight_version: NonNegativeInt
    digest: Sha256
    extras_digest: Sha256 = compute_extras_digest(None)
    chain_hash: Sha256
    cumulative_hash: Sha256
    response_id: Identifier
    admitted_at: float | None = None
    output_fingerprint: str | None = None
    continuation_fingerprint: str | None = None
    fingerprint_version: int | None = None


class ManifestFailure(_WireModel):
    """A call whose tokens are lost, and why."""

    model_call_id: str
    reason: str


class RolloutManifest(_WireModel):
    """Every staged call of a rollout, and those that were lost."""

    rollout_id: Identifier
    records: list[CallRecord] = Field(default_factory=list)
    failures: list[ManifestFailure] = Field(default_factory=list)


class RolloutReceipt(_DigestWireModel):
    """What a trainer holds of a finished rollout: its reward, the rows of its calls, and the call it ended with."""

    rollout_id: Identifier
    reward: float | None = None
    terminal_model_call_id: Identifier | None = None
    manifest: list[CallRecord] = Field(default_factory=list)
    capture_poisoned: bool = False
    failure_reason: str | None = None
    terminal_selection: TerminalSelectionMethod | None = None
    terminal_attribution_reason: str | None = None

    @model_validator(mode="after")
    def _validate_manifest(self) -> Self:
        if strangers := sorted({row.rollout_id for row in self.manifest} - {self.rollout_id}):
            raise ValueError(f"the manifest has rows of other rollouts: {', '.join(strangers)}")
        return self

    @model_validator(mode="after")
    def _validate_attribution_state(self) -> Self:
        if self.terminal_selection is not None and self.terminal_model_call_id is None:
            raise ValueError("terminal_selection says how a terminal call was found, but there is none")
        return self
