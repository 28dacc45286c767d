"""The record of one captured model call."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.token_id_capture.fingerprints import FINGERPRINT_VERSION
from nemo_gym.token_id_capture.responses import (
    TokenFields,
    extract_token_fields,
    response_to_output_items,
    strip_token_fields,
)
from nemo_gym.token_id_capture.tokens import compute_digest, encode_token_ids

__all__ = [
    "FINGERPRINT_VERSION",
    "MISSING_CHAIN_HASH_REASON",
    "MISSING_RESPONSE_ID_REASON",
    "TOKEN_ENTRY_RECORD_SCHEMA_VERSION",
    "UNCOMMITTED_CALL_REASON",
    "UNRESOLVED_PARENT_REASON",
    "ParentResolutionStatus",
    "TokenEntry",
    "TokenFields",
    "compute_digest",
    "cumulative_tokens",
    "encode_token_ids",
    "extract_token_fields",
    "response_to_output_items",
    "stamp_lineage",
    "strip_token_fields",
]

TOKEN_ENTRY_RECORD_SCHEMA_VERSION = 1

UNRESOLVED_PARENT_REASON = "unresolved_parent"
UNCOMMITTED_CALL_REASON = "request_finished_without_staged_coordinates"
MISSING_RESPONSE_ID_REASON = "ledger_row_missing_response_id"
MISSING_CHAIN_HASH_REASON = "ledger_row_missing_chain_hash"


class ParentResolutionStatus(StrEnum):
    """Whether a call begins a conversation, continues a known call, or continues one that couldn't be told."""

    ROOT = "root"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"


class TokenEntry(BaseModel):
    """Tokens, log-probabilities (one per generated token) and place in the rollout of one model call.

    `prompt_token_ids` is the whole prompt, or with `prompt_is_delta` what follows the parent's tokens. `cum_len` and
    `digest` are of the whole: prompt and generation. The `continuation_*` fields say how a request that goes on from
    here is told: what the model had said by then, and what the request it answered began with.
    """

    model_config = ConfigDict(extra="allow")

    schema_version: int = TOKEN_ENTRY_RECORD_SCHEMA_VERSION
    rollout_id: str
    model_call_id: str
    model: str = ""
    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: Any | None = None
    output_items: list[dict[str, Any]] = Field(default_factory=list)
    token_item_index: int | None = None
    response_id: str | None = None
    created_at: float = 0.0
    parent_call_id: str | None = None
    cum_len: int | None = None
    digest: str | None = None
    parent_resolution: ParentResolutionStatus | None = None
    continuation_fingerprint: str = ""
    continuation_context_len: int = 0
    continuation_context_digest: str = ""
    parent_resolution_reason: str = ""
    fingerprint_version: int | None = None
    prompt_is_delta: bool = False
    prefix_requested: bool = False
    prefix_supplied: bool = False

    @model_validator(mode="after")
    def _refuse_a_newer_record(self) -> Self:
        if self.schema_version != TOKEN_ENTRY_RECORD_SCHEMA_VERSION:
            raise ValueError(
                f"schema_version is {self.schema_version}; this version reads {TOKEN_ENTRY_RECORD_SCHEMA_VERSION}"
            )
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.generation_token_ids) != len(self.generation_log_probs):
            raise ValueError(
                f"{len(self.generation_token_ids)} generated tokens came with "
                f"{len(self.generation_log_probs)} log-probabilities"
            )
        index = self.token_item_index
        if index is not None and not 0 <= index < len(self.output_items):
            raise ValueError(f"token_item_index {index} is outside the {len(self.output_items)} output items")
        return self

    @model_validator(mode="after")
    def _check_parent(self) -> Self:
        resolved = self.parent_resolution is ParentResolutionStatus.RESOLVED
        if resolved and not self.parent_call_id:
            raise ValueError("a resolved parent needs parent_call_id")
        if self.parent_resolution is not None and not resolved and self.parent_call_id:
            raise ValueError(f"parent_call_id given although the parent is {self.parent_resolution}")
        if self.prompt_is_delta and not resolved:
            raise ValueError("prompt_is_delta needs a resolved parent")
        return self


def cumulative_tokens(entry: TokenEntry, parent_tokens: Sequence[int] = ()) -> list[int]:
    """All tokens up to the end of a call: prompt, then generation. A delta needs its parent's `parent_tokens`."""
    head = list(parent_tokens) if entry.prompt_is_delta else []
    return [*head, *entry.prompt_token_ids, *entry.generation_token_ids]


def stamp_lineage(
    entry: TokenEntry,
    *,
    status: ParentResolutionStatus,
    parent_call_id: str | None = None,
    reason: str = "",
    parent_tokens: Sequence[int] | None = None,
    as_delta: bool = False,
) -> TokenEntry:
    """A copy of a whole entry that says where it comes from and what it comes to.

    With `as_delta` the prompt is cut to what follows `parent_tokens`, if it does begin with them.
    """
    whole = cumulative_tokens(entry)
    update: dict[str, Any] = {
        "parent_resolution": status,
        "parent_call_id": parent_call_id,
        "parent_resolution_reason": reason,
        "cum_len": len(whole),
        "digest": compute_digest(whole),
    }
    length = len(parent_tokens or ())
    if as_delta and parent_tokens and entry.prompt_token_ids[:length] == list(parent_tokens):
        update |= {"prompt_token_ids": entry.prompt_token_ids[length:], "prompt_is_delta": True}
    return entry.model_copy(update=update)
