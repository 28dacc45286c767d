"""The places tokens go to, come from and are looked up in; anything with these methods will do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nemo_gym.token_id_capture.fingerprints import FINGERPRINT_VERSION
from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.staging.records import CommitCoords, RolloutManifest


@dataclass(frozen=True)
class TokenCaptureSnapshot:
    """All that was captured of a rollout; `snapshot_id` and `version` name exactly this state of it."""

    rollout_id: str
    entries: tuple[TokenEntry, ...]
    incomplete: bool
    snapshot_id: str
    version: int


@dataclass(frozen=True)
class LineageResolution:
    """Which call a request continues. Tokens where the store has them, staged coordinates where a worker does."""

    status: ParentResolutionStatus
    parent_call_id: str | None = None
    reason: str = ""
    parent_tokens: list[int] | None = None
    parent_cum_len: int | None = None
    parent_staging_chain: list[str] = field(default_factory=list)
    parent_chain_hash: str = ""

    @classmethod
    def root(cls) -> LineageResolution:
        return cls(ParentResolutionStatus.ROOT)

    @classmethod
    def unresolved(cls, reason: str) -> LineageResolution:
        return cls(ParentResolutionStatus.UNRESOLVED, reason=reason)


@dataclass(frozen=True)
class CaptureLedgerCommit:
    """One call whose tokens a worker has staged: its coordinates, and how the calls that continue it are told.

    `staging_chain` has the keys of the staged calls from the rollout's first one to this one.
    """

    rollout_id: str
    model_call_id: str
    coords: CommitCoords
    response_id: str | None = None
    admitted_at: float | None = None
    output_fingerprint: str = ""
    continuation_fingerprint: str = ""
    continuation_context_len: int = 0
    continuation_context_digest: str = ""
    staging_chain: list[str] = field(default_factory=list)
    fingerprint_version: int = FINGERPRINT_VERSION


@runtime_checkable
class TokenSink(Protocol):
    """Keeps captured calls. May also have `async begin_call(rollout_id, model_call_id)`, told before a call is made."""

    async def put(self, entry: TokenEntry) -> None:
        """Keep an entry for good before returning; the same entry again changes nothing, another one is an error."""

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        """Note that something of the rollout is missing."""

    async def close(self) -> None:
        """Let go of what is open."""


@runtime_checkable
class TokenSource(Protocol):
    """Hands over what a sink keeps."""

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """Take no more of the rollout and return what there is; the same snapshot each time."""

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Forget the rollout if that is still its state; whether it was."""

    async def close(self) -> None:
        """Let go of what is open."""


@runtime_checkable
class LineageResolver(Protocol):
    """Finds the call that a request continues."""

    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> LineageResolution:
        """The parent among the calls of the rollout that were captured before."""

    def is_process_shared(self) -> bool:
        """Whether several processes see the same calls."""

    async def close(self) -> None:
        """Let go of what is open."""


@runtime_checkable
class CaptureLedger(LineageResolver, Protocol):
    """A resolver that also keeps the token-free rows of calls whose tokens are staged by inference workers."""

    async def record(self, commit: CaptureLedgerCommit) -> None:
        """Keep a row for good before returning; the same row again changes nothing, another one is an error."""

    async def record_failure(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Note that a call's tokens are lost."""

    async def manifest(self, rollout_id: str) -> RolloutManifest:
        """All rows and failures of a rollout."""

    async def has_rows(self, rollout_id: str) -> bool:
        """Whether anything was noted of the rollout."""
