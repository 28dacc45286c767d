"""A worker's side of a staged call: begun when the request comes in, completed or failed once, and never in its way."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from nemo_gym.token_id_capture.staging.digests import (
    compute_call_digest,
    compute_chain_hash,
    compute_extras_digest,
    hash_token_ids,
)
from nemo_gym.token_id_capture.staging.protocols import CaptureAdapter, StagingSink, WeightVersionProvider
from nemo_gym.token_id_capture.staging.records import CaptureAdmission, CommitCoords, StagedCallRecord

_logger = logging.getLogger("nemo_gym.token_id_capture")


@dataclass
class ActiveCall:
    """A call that is being generated: what was admitted, the tokens it begins with, and the weights it runs on."""

    admission: CaptureAdmission
    prefix_token_ids: list[int]
    weight_version: int
    _is_completed: bool = field(default=False, repr=False)


class RolloutTokenCapture:
    """Stages the tokens of calls in `sink`, under the weights that `weight_version_fn` names when they begin."""

    def __init__(
        self,
        *,
        sink: StagingSink,
        weight_version_fn: WeightVersionProvider,
        adapter: CaptureAdapter | None = None,
    ) -> None:
        self._sink = sink
        self._weight_version = weight_version_fn
        self._adapter = adapter
        self._claims = Lock()

    @property
    def adapter(self) -> CaptureAdapter | None:
        return self._adapter

    def begin_call(
        self,
        admission: CaptureAdmission,
        *,
        prefix_token_ids: list[int] | None = None,
        stream: bool = False,
        weight_version: int | None = None,
    ) -> ActiveCall:
        """Start a call. `prefix_token_ids` are those the worker put together from the admission's staging chain.

        Raises ValueError for a streamed call and for a prefix that isn't what was admitted.
        """
        if stream:
            raise ValueError(f"Model call {admission.model_call_id} is streamed: its tokens can't be captured.")
        prefix = self._resolve_prefix(admission, prefix_token_ids)
        version = self._weight_version() if weight_version is None else weight_version
        return ActiveCall(admission, prefix, version)

    @staticmethod
    def _resolve_prefix(admission: CaptureAdmission, prefix_token_ids: list[int] | None) -> list[int]:
        admitted = admission.required_prefix_token_ids
        if prefix_token_ids is None:
            prefix = admitted
        elif admitted and prefix_token_ids != admitted:
            raise ValueError(f"The prefix of model call {admission.model_call_id} is not the one it was admitted with.")
        else:
            prefix = prefix_token_ids
        if len(prefix) != admission.prev_len:
            raise ValueError(
                f"Model call {admission.model_call_id} continues {admission.prev_len} tokens, but {len(prefix)} came."
            )
        return prefix

    def complete_call(
        self,
        call: ActiveCall,
        *,
        prompt_token_ids: list[int],
        generated_token_ids: list[int],
        generated_logprobs: list[float],
        extras: dict[str, Any] | None = None,
        attachments: Mapping[str, Any] | None = None,
    ) -> CommitCoords:
        """Stage what a call came to. What can't be staged is told in the coordinates, not raised.

        Raises RuntimeError when the call is completed already.
        """
        self._claim_completion(call)
        try:
            record = _staged_record(call, prompt_token_ids, generated_token_ids, generated_logprobs, extras)
            stored = self._sink.stage(record, attachments=attachments)
            if not stored.ok or stored.staging_key is None:
                raise ValueError(stored.error)
            return _staged_coords(record, stored.staging_key)
        except Exception as error:
            _logger.warning("Model call %s could not be staged: %r", call.admission.model_call_id, error)
            return self._failed_coords(call)

    def complete_call_from_response(
        self, call: ActiveCall, response_payload: Any, *, attachments: Mapping[str, Any] | None = None
    ) -> CommitCoords:
        """`complete_call` with what the adapter reads in the engine's answer."""
        if self._adapter is None:
            raise RuntimeError("There is no adapter to read responses with: use complete_call.")
        try:
            prompt = self._adapter.extract_prompt_ids(response_payload)
            generated, logprobs = self._adapter.extract_generation(response_payload)
            extras = self._adapter.extract_extras(response_payload)
        except Exception as error:
            return self.fail_call(call, reason=f"the engine's answer can't be read: {error!r}")
        return self.complete_call(
            call,
            prompt_token_ids=prompt,
            generated_token_ids=generated,
            generated_logprobs=logprobs,
            extras=extras,
            attachments=attachments,
        )

    def fail_call(self, call: ActiveCall, *, reason: str) -> CommitCoords:
        """Give a call up; its coordinates say that it was not staged."""
        self._claim_completion(call)
        _logger.warning("Model call %s is not staged: %s", call.admission.model_call_id, reason)
        return self._failed_coords(call)

    def _claim_completion(self, call: ActiveCall) -> None:
        with self._claims:
            if call._is_completed:
                raise RuntimeError(f"Model call {call.admission.model_call_id} is completed already.")
            call._is_completed = True

    @staticmethod
    def _failed_coords(call: ActiveCall) -> CommitCoords:
        admission = call.admission
        return CommitCoords(
            rollout_id=admission.rollout_id,
            model_call_id=admission.model_call_id,
            parent_call_id=admission.parent_call_id,
            mode=admission.mode,
            disposition="capture_failed",
            weight_version=call.weight_version,
        )


def _staged_record(
    call: ActiveCall,
    prompt: list[int],
    generated: list[int],
    logprobs: list[float],
    extras: dict[str, Any] | None,
) -> StagedCallRecord:
    admission, prefix = call.admission, call.prefix_token_ids
    if prompt[: len(prefix)] != prefix:
        raise ValueError("the prompt does not begin with the tokens of the call it continues")
    if len(generated) != len(logprobs):
        raise ValueError(f"{len(generated)} generated tokens with {len(logprobs)} log-probabilities")
    added = prompt[len(prefix) :]
    delta = added + generated
    fields: dict[str, Any] = {
        "rollout_id": admission.rollout_id,
        "model_call_id": admission.model_call_id,
        "parent_call_id": admission.parent_call_id,
        "mode": admission.mode,
        "prev_len": admission.prev_len,
        "delta_len": len(delta),
        "cum_len": admission.prev_len + len(delta),
        "weight_version": call.weight_version,
        "token_ids_delta": delta,
        "token_mask_delta": [0.0] * len(added) + [1.0] * len(generated),
        "generation_log_probs_delta": [0.0] * len(added) + [float(value) for value in logprobs],
        "extras_digest": compute_extras_digest(extras),
        "chain_hash": compute_chain_hash(admission.parent_chain_hash, delta),
        "cumulative_hash": hash_token_ids(prefix + delta),
    }
    return StagedCallRecord(**fields, digest=compute_call_digest(**fields), extras=extras)


def _staged_coords(record: StagedCallRecord, staging_key: str) -> CommitCoords:
    shared = record.model_dump(include=set(CommitCoords.model_fields) & set(type(record).model_fields))
    return CommitCoords(**shared, disposition="staged", staging_key=staging_key)
