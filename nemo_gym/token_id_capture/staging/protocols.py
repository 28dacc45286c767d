"""What an inference worker brings along to stage its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from nemo_gym.token_id_capture.staging.records import StagedCallRecord, StageResult


@runtime_checkable
class StagingSink(Protocol):
    """Where a worker stores staged calls."""

    def stage(self, record: StagedCallRecord, *, attachments: Mapping[str, Any] | None = None) -> StageResult:
        """Store a record, with large tensors beside it; the key it is found under, or the error."""


@runtime_checkable
class StagingSource(Protocol):
    """Where staged calls are read back."""

    def fetch(self, keys: Sequence[str]) -> list[StagedCallRecord]:
        """The records of these keys, in their order. Raises KeyError for one that isn't there."""


@runtime_checkable
class WeightVersionProvider(Protocol):
    """Tells which weights the worker runs now."""

    def __call__(self) -> int: ...


@runtime_checkable
class CaptureAdapter(Protocol):
    """Reads and writes the payloads of one inference engine."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        """The request, made to begin its prompt with these tokens."""

    def extract_prompt_ids(self, response_payload: dict[str, Any]) -> list[int]:
        """The tokens of the prompt as the engine saw it."""

    def extract_generation(self, response_payload: dict[str, Any]) -> tuple[list[int], list[float]]:
        """The generated tokens with the log-probability of each."""

    def extract_extras(self, response_payload: dict[str, Any]) -> dict[str, Any] | None:
        """What else is worth keeping of a call."""


ResponsePayload: TypeAlias = dict[str, Any]
