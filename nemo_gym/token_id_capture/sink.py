"""One model call of a rollout whose tokens are captured, from the request that comes in to the record that is kept."""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.token_id_capture.current import active_call
from nemo_gym.token_id_capture.errors import LineageLookupError
from nemo_gym.token_id_capture.fingerprints import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from nemo_gym.token_id_capture.lineage_index import LOOKUP_ERROR, RESOLVER_UNAVAILABLE
from nemo_gym.token_id_capture.protocols import CaptureLedger, LineageResolution, LineageResolver, TokenSink
from nemo_gym.token_id_capture.records import TokenEntry, stamp_lineage
from nemo_gym.token_id_capture.responses import (
    TokenFields,
    extract_token_fields,
    plain_items,
    response_id_of,
    response_to_output_items,
)
from nemo_gym.token_id_capture.staging.records import CaptureAdmission

NG_CAPTURE_FIELD = "ng_capture"
NG_COMMIT_COORDS_FIELD = "ng_commit_coords"

_logger = logging.getLogger("nemo_gym.token_id_capture")
_health: Counter[str] = Counter()


@dataclass
class CaptureContext:
    """A model call that is being captured: whose it is, where its tokens go, and what is known of it by now.

    `request_items` are the items that the call was asked with, `parent_*` what it continues. `committed` says that its
    record is kept; `generation_started` that the model was asked, so that a call without a record is a loss.
    """

    rollout_id: str
    model_call_id: str
    token_sink: TokenSink | None
    lineage_store: LineageResolver | CaptureLedger | None = None
    model: str = ""
    committed: bool = False
    delta_records: bool = False
    prefix_requested: bool = False
    prefix_supplied: bool = False
    parent_resolution: LineageResolution | None = None
    external_staging: bool = False
    admitted_at: float | None = None
    capture_admission: CaptureAdmission | None = None
    parent_staging_chain: list[str] = field(default_factory=list)
    parent_chain_hash: str = ""
    request_items: list[dict[str, Any]] | None = None
    external_commit_coords: dict[str, Any] | None = None
    external_worker_response_seen: bool = False
    generation_started: bool = False
    loss_is_noted: bool = False

    @property
    def parent_call_id(self) -> str | None:
        """The call that this one continues; None when it begins a conversation or that can't be told."""
        return self.parent_resolution.parent_call_id if self.parent_resolution else None

    @property
    def parent_tokens(self) -> list[int] | None:
        """All tokens up to the end of the parent, where they are known."""
        return self.parent_resolution.parent_tokens if self.parent_resolution else None


def current_capture_context() -> CaptureContext | None:
    """The call that the running code works for, None when its tokens aren't captured."""
    return active_call.get()


def set_token_sink(context: CaptureContext) -> Token[CaptureContext | None]:
    """Make `context` the current call."""
    return active_call.set(context)


def reset_token_sink(token: Token[CaptureContext | None]) -> None:
    """Undo `set_token_sink`."""
    active_call.reset(token)


def capture_health_snapshot() -> dict[str, int]:
    """How often what happened to captured calls in this process."""
    return dict(_health)


def count_health(event: str) -> None:
    _health[event] += 1


async def resolve_parent(request_messages: list[Any] | None) -> None:
    """Find out what the current call continues; nothing outside of a captured call.

    `request_messages` are the items or messages of the request. Raises LineageLookupError when the lookup fails and
    the tokens are staged elsewhere: a worker can't be told half the truth.
    """
    context = active_call.get()
    if context is None:
        return
    items = plain_items(request_messages)
    context.request_items = items
    resolution = await _resolution(context, items)
    context.parent_resolution = resolution
    context.parent_staging_chain = list(resolution.parent_staging_chain)
    context.parent_chain_hash = resolution.parent_chain_hash
    count_health(f"parent_{resolution.status.value}")


async def _resolution(context: CaptureContext, items: list[dict[str, Any]]) -> LineageResolution:
    if not assistant_fingerprint(items):
        return LineageResolution.root()
    if context.lineage_store is None:
        return LineageResolution.unresolved(RESOLVER_UNAVAILABLE)
    try:
        return await context.lineage_store.resolve(context.rollout_id, items)
    except Exception as error:
        count_health("lookup_errors")
        if context.external_staging:
            raise LineageLookupError(
                f"Model call {context.model_call_id} of rollout {context.rollout_id}: what it continues can't be "
                f"looked up ({error!r})."
            ) from error
        _logger.warning("Rollout %s: a model call's parent can't be looked up: %r", context.rollout_id, error)
        return LineageResolution.unresolved(LOOKUP_ERROR)


async def register_call_intent() -> None:
    """Tell the sink that the current call is about to be made; what it raises fails the call before it is made."""
    context = active_call.get()
    if context is None:
        return
    begin_call = getattr(context.token_sink, "begin_call", None)
    if begin_call is not None:
        await begin_call(context.rollout_id, context.model_call_id)
    context.generation_started = True


async def capture_tokens(response: Any, request_messages: list[Any] | None = None) -> None:
    """Keep the tokens that the answer to the current call carries.

    Never raises: what can't be captured marks the rollout incomplete. Does nothing where a worker stages them.
    """
    context = active_call.get()
    if context is None or context.external_staging:
        return
    try:
        fields = extract_token_fields(response)
        if fields is None:
            raise ValueError("the response carries no token ids")
        items = [dict(item) for item in request_messages] if request_messages is not None else context.request_items
        await commit_entry(context, _entry(context, response, fields, items or []))
    except Exception as error:
        _logger.warning(
            "Model call %s of rollout %s is not captured: %s", context.model_call_id, context.rollout_id, error
        )
        await mark_incomplete(context)


def _entry(
    context: CaptureContext, response: Any, fields: TokenFields, request_items: list[dict[str, Any]]
) -> TokenEntry:
    output = response_to_output_items(response)
    model = context.model or (response.get("model") if isinstance(response, dict) else getattr(response, "model", ""))
    entry = TokenEntry(
        rollout_id=context.rollout_id,
        model_call_id=context.model_call_id,
        model=model or "",
        prompt_token_ids=fields.prompt_token_ids,
        generation_token_ids=fields.generation_token_ids,
        generation_log_probs=fields.generation_log_probs,
        routed_experts=fields.routed_experts,
        output_items=output,
        token_item_index=fields.item_index if output else None,
        response_id=response_id_of(response),
        created_at=time.time(),
        continuation_fingerprint=assistant_fingerprint([*request_items, *output]),
        continuation_context_len=len(request_items),
        continuation_context_digest=conversation_digest(request_items),
        fingerprint_version=FINGERPRINT_VERSION,
        prefix_requested=context.prefix_requested,
        prefix_supplied=context.prefix_supplied,
    )
    parent = context.parent_resolution or LineageResolution.unresolved(RESOLVER_UNAVAILABLE)
    return stamp_lineage(
        entry,
        status=parent.status,
        parent_call_id=parent.parent_call_id,
        reason=parent.reason,
        parent_tokens=parent.parent_tokens,
        as_delta=context.delta_records,
    )


async def commit_entry(context: CaptureContext, entry: TokenEntry) -> None:
    """Hand an entry to the sink, and to a lineage store that has to be told. Raises what they raise."""
    if context.token_sink is None:
        raise ValueError("there is no sink to keep the tokens")
    await context.token_sink.put(entry)
    context.committed = True
    count_health("committed")
    remember = getattr(context.lineage_store, "put", None)
    if remember is not None:
        await remember(entry)


async def mark_incomplete(context: CaptureContext) -> None:
    """Note, once, that tokens of a call's rollout are missing. What the sink raises is logged."""
    if context.loss_is_noted:
        return
    context.loss_is_noted = True
    count_health("incomplete")
    if context.token_sink is None:
        return
    try:
        await context.token_sink.mark_incomplete(context.rollout_id, context.model_call_id)
    except Exception:
        count_health("unmarked_incomplete")
        _logger.exception("Rollout %s can't even be marked incomplete", context.rollout_id)
