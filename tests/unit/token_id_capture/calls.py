"""Captured calls as the tests need them: what was asked and said, with tokens that are easy to read."""

from __future__ import annotations

from typing import Any

from nemo_gym.token_id_capture.fingerprints import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry, cumulative_tokens, stamp_lineage

ROOT, RESOLVED, UNRESOLVED = ParentResolutionStatus


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def function_output(call_id: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def call(
    call_id: str,
    prompt: list[int],
    generation: list[int],
    *,
    parent: TokenEntry | None = None,
    status: ParentResolutionStatus | None = None,
    asked: list[dict[str, Any]] | None = None,
    output: list[dict[str, Any]] | None = None,
    delta: bool = False,
    rollout_id: str = "r",
    created_at: float = 0.0,
    response_id: str | None = None,
) -> TokenEntry:
    """A call; a root, or the continuation of `parent`."""
    asked = [user("hi")] if asked is None else asked
    output = [said(call_id)] if output is None else output
    entry = TokenEntry(
        rollout_id=rollout_id,
        model_call_id=call_id,
        prompt_token_ids=prompt,
        generation_token_ids=generation,
        generation_log_probs=[-0.5] * len(generation),
        output_items=output,
        token_item_index=len(output) - 1,
        created_at=created_at,
        response_id=response_id,
        continuation_fingerprint=assistant_fingerprint([*asked, *output]),
        continuation_context_len=len(asked),
        continuation_context_digest=conversation_digest(asked),
        fingerprint_version=FINGERPRINT_VERSION,
    )
    return stamp_lineage(
        entry,
        status=status or (ROOT if parent is None else RESOLVED),
        parent_call_id=parent.model_call_id if parent else None,
        parent_tokens=cumulative_tokens(parent) if parent else None,
        as_delta=delta,
    )
