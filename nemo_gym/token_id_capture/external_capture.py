"""The model server's side of staged tokens: what a worker is asked, and the row that its answer leaves."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import ValidationError

from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS
from nemo_gym.token_id_capture.adapters.megatron import OFFLOAD_FIELD
from nemo_gym.token_id_capture.adapters.vllm import REQUIRED_PREFIX_FIELD
from nemo_gym.token_id_capture.config import ExternalStagingBackend
from nemo_gym.token_id_capture.errors import ExternalCaptureError
from nemo_gym.token_id_capture.fingerprints import assistant_fingerprint, conversation_digest
from nemo_gym.token_id_capture.protocols import CaptureLedger, CaptureLedgerCommit
from nemo_gym.token_id_capture.records import UNRESOLVED_PARENT_REASON, ParentResolutionStatus
from nemo_gym.token_id_capture.responses import response_id_of, response_to_output_items
from nemo_gym.token_id_capture.sink import (
    NG_CAPTURE_FIELD,
    NG_COMMIT_COORDS_FIELD,
    CaptureContext,
    count_health,
    current_capture_context,
)
from nemo_gym.token_id_capture.staging.records import (
    INVALID_COMMIT_COORDS_REASON,
    WORKER_CAPTURE_FAILED_REASON,
    WORKER_MISSING_COMMIT_COORDS_REASON,
    CaptureAdmission,
    CommitCoords,
)

_logger = logging.getLogger("nemo_gym.token_id_capture")

_CHOICE_FIELDS = TOKEN_METADATA_FIELDS | {"token_ids", "logprobs"}
_RESPONSE_FIELDS = TOKEN_METADATA_FIELDS | {"prompt_logprobs", "kv_transfer_params"}
_ADMITTED = ("rollout_id", "model_call_id", "parent_call_id", "mode", "prev_len")


@runtime_checkable
class ExternalCaptureHandler(Protocol):
    """Prepares a request for a worker, takes its coordinates off its answer, and puts the row in the ledger."""

    def prepare_request(self, request_payload: dict[str, Any]) -> dict[str, Any]:
        """The request for the engine."""

    def prepare_response(self, response_payload: dict[str, Any]) -> None:
        """Take everything off the engine's answer that isn't for the client, in place."""

    async def finalize_response(self, served_payload: dict[str, Any]) -> None:
        """Note the call as it is served, in whatever dialect."""


class _BaseExternalCaptureHandler(ABC):
    _BACKEND_LABEL: ClassVar[str]

    def prepare_request(self, request_payload: dict[str, Any]) -> dict[str, Any]:
        """The request with its admission; as it is outside of a captured call, or when its parent can't be told.

        Raises ExternalCaptureError for a request of several answers.
        """
        context = _external_context()
        if context is None:
            return request_payload
        if (request_payload.get("n") or 1) != 1:
            raise ExternalCaptureError(
                f"n is {request_payload['n']}, but {self._BACKEND_LABEL} workers stage one answer a call: ask for one."
            )
        admission = _admission(context)
        context.capture_admission = admission
        payload = {key: value for key, value in request_payload.items() if key not in ("stream", "stream_options")}
        return payload if admission is None else self._prepare_admitted_request(payload, admission)

    @abstractmethod
    def _prepare_admitted_request(
        self, request_payload: dict[str, Any], admission: CaptureAdmission
    ) -> dict[str, Any]: ...

    def prepare_response(self, response_payload: dict[str, Any]) -> None:
        """Take coordinates and tokens off the engine's answer."""
        context = _external_context()
        if context is None:
            return
        coords = response_payload.pop(NG_COMMIT_COORDS_FIELD, None)
        _strip_tokens(response_payload)
        context.external_worker_response_seen = True
        context.external_commit_coords = coords

    async def finalize_response(self, served_payload: dict[str, Any]) -> None:
        """Put the call's row in the ledger, or the reason why its tokens are lost."""
        context = _external_context()
        if context is None or context.committed or not context.external_worker_response_seen:
            return
        found = _coords_or_reason(context)
        store = ledger_of(context)
        if isinstance(found, CommitCoords):
            await store.record(_commit(context, found, served_payload))
            count_health("committed")
        else:
            _logger.warning("Model call %s of rollout %s: %s", context.model_call_id, context.rollout_id, found)
            await store.record_failure(context.rollout_id, context.model_call_id, found)
            count_health("poisoned")
        context.committed = True


class VLLMWorkerCaptureHandler(_BaseExternalCaptureHandler):
    _BACKEND_LABEL = "vLLM"

    def _prepare_admitted_request(self, request_payload: dict[str, Any], admission: CaptureAdmission) -> dict[str, Any]:
        payload = {
            **request_payload,
            "logprobs": True,
            "top_logprobs": 0,
            "return_tokens_as_token_ids": True,
            NG_CAPTURE_FIELD: admission.model_dump(mode="json"),
        }
        if admission.required_prefix_token_ids:
            payload[REQUIRED_PREFIX_FIELD] = admission.required_prefix_token_ids
        return payload


class MegatronWorkerCaptureHandler(_BaseExternalCaptureHandler):
    _BACKEND_LABEL = "Megatron"

    def _prepare_admitted_request(self, request_payload: dict[str, Any], admission: CaptureAdmission) -> dict[str, Any]:
        offload = {**(request_payload.get(OFFLOAD_FIELD) or {}), NG_CAPTURE_FIELD: admission.model_dump(mode="json")}
        return {**request_payload, "n": 1, OFFLOAD_FIELD: offload}


def make_external_capture_handler(backend: ExternalStagingBackend) -> ExternalCaptureHandler:
    """The handler of a backend. Raises ExternalCaptureError for one that doesn't exist."""
    if backend == "vllm_worker":
        return VLLMWorkerCaptureHandler()
    if backend == "megatron_worker":
        return MegatronWorkerCaptureHandler()
    raise ExternalCaptureError(f"There is no external staging backend {backend!r}: use vllm_worker or megatron_worker.")


def _external_context() -> CaptureContext | None:
    context = current_capture_context()
    return context if context is not None and context.external_staging else None


def ledger_of(context: CaptureContext) -> CaptureLedger:
    """The ledger of a call whose tokens are staged. Raises ExternalCaptureError when there is none."""
    if not isinstance(context.lineage_store, CaptureLedger):
        raise ExternalCaptureError("external staging needs a lineage store that keeps a ledger")
    return context.lineage_store


def _admission(context: CaptureContext) -> CaptureAdmission | None:
    resolution = context.parent_resolution
    if resolution is None or resolution.status is ParentResolutionStatus.UNRESOLVED:
        return None
    identity = {"rollout_id": context.rollout_id, "model_call_id": context.model_call_id}
    if resolution.status is ParentResolutionStatus.ROOT:
        return CaptureAdmission(**identity, mode="text")
    return CaptureAdmission(
        **identity,
        mode="token_in",
        parent_call_id=resolution.parent_call_id,
        prev_len=resolution.parent_cum_len or len(resolution.parent_tokens or ()),
        required_prefix_token_ids=resolution.parent_tokens or [],
        staging_chain=context.parent_staging_chain,
        parent_chain_hash=context.parent_chain_hash or None,
    )


def _strip_tokens(response_payload: dict[str, Any]) -> None:
    _pop_all(response_payload, _RESPONSE_FIELDS)
    for choice in response_payload.get("choices") or ():
        _pop_all(choice, _CHOICE_FIELDS)
        _pop_all(choice.get("message") or {}, _CHOICE_FIELDS)


def _pop_all(data: dict[str, Any], names: frozenset[str]) -> None:
    for name in names:
        data.pop(name, None)


def _coords_or_reason(context: CaptureContext) -> CommitCoords | str:
    admission = context.capture_admission
    if admission is None:
        return UNRESOLVED_PARENT_REASON
    if context.external_commit_coords is None:
        return WORKER_MISSING_COMMIT_COORDS_REASON
    try:
        coords = CommitCoords.model_validate(context.external_commit_coords)
    except ValidationError:
        return INVALID_COMMIT_COORDS_REASON
    if coords.disposition == "capture_failed":
        return WORKER_CAPTURE_FAILED_REASON
    same = all(getattr(coords, name) == getattr(admission, name) for name in _ADMITTED)
    return coords if same else INVALID_COMMIT_COORDS_REASON


def _commit(context: CaptureContext, coords: CommitCoords, served_payload: dict[str, Any]) -> CaptureLedgerCommit:
    asked = context.request_items or []
    said = response_to_output_items(served_payload)
    return CaptureLedgerCommit(
        rollout_id=context.rollout_id,
        model_call_id=context.model_call_id,
        coords=coords,
        response_id=response_id_of(served_payload),
        admitted_at=context.admitted_at,
        output_fingerprint=assistant_fingerprint(said),
        continuation_fingerprint=assistant_fingerprint([*asked, *said]),
        continuation_context_len=len(asked),
        continuation_context_digest=conversation_digest(asked),
        staging_chain=[*context.parent_staging_chain, coords.staging_key or ""],
    )
