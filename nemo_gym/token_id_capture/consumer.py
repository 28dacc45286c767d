"""A rollout's captured calls, put together for whoever trains on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nemo_gym.token_id_capture.attribution import is_masked
from nemo_gym.token_id_capture.builder import PREFIX_MERGING, BuildOutput, run_builder
from nemo_gym.token_id_capture.projection import project_main_chain_response
from nemo_gym.token_id_capture.protocols import TokenCaptureSnapshot, TokenSource
from nemo_gym.token_id_capture.terminal import TerminalAttribution, resolve_terminal


@dataclass(frozen=True)
class BuiltRollout:
    """A snapshot, what was built of it, and the response that its main chain makes (None: nothing was generated)."""

    snapshot: TokenCaptureSnapshot
    build: BuildOutput
    terminal: TerminalAttribution
    response: dict[str, Any] | None
    masked: bool

    def metrics(self) -> dict[str, Any]:
        """The counts that go on record as `_ng_token_capture`."""
        notes, main = self.build.notes, self.build.main_chain
        delivered = sum(len(entry.generation_token_ids) for entry in main)
        metrics = {
            "n_calls": notes.calls,
            "terminal_attribution": {
                "method": self.terminal.method,
                "call_id": self.terminal.call_id,
                "reason": self.terminal.reason,
                "chain": [entry.model_call_id for entry in main],
            },
            "chains": len(self.build.chains),
            "roots": len(notes.roots),
            "quarantined_calls": len(self.build.quarantined),
            "quarantined_fraction": len(self.build.quarantined) / notes.calls if notes.calls else 0.0,
            "delivered_fraction": delivered / notes.generated_tokens if notes.generated_tokens else 0.0,
            "generated_tokens_captured": notes.generated_tokens,
            "generated_tokens_delivered": delivered,
            "parent_link_failures": len(notes.parent_link_failures),
            "unresolved_parent_calls": len(notes.unresolved_parents),
            "empty_generation_calls": len(notes.empty_generations),
        }
        return {**metrics, "capture_incomplete": True} if self.snapshot.incomplete else metrics


async def build_rollout(
    rollout_id: str,
    source: TokenSource,
    *,
    builder: str = PREFIX_MERGING,
    model: str = "",
    verified_response: dict[str, Any] | None = None,
    explicit_terminal_call_id: str | None = None,
    declared_response_id: str | None = None,
) -> BuiltRollout:
    """Freeze a rollout and build it. Raises what the source raises, and AssertionError for a chain that has gaps."""
    snapshot = await source.freeze(rollout_id)
    entries = list(snapshot.entries)
    terminal = resolve_terminal(
        entries, verified_response, explicit_terminal_call_id, declared_response_id=declared_response_id
    )
    build = run_builder(entries, builder, terminal.call_id)
    main = build.main_chain
    response = project_main_chain_response(rollout_id, main, model=model) if main else None
    masked = is_masked(build, terminal, incomplete=snapshot.incomplete)
    return BuiltRollout(snapshot, build, terminal, response, masked)


async def trajectories_from_source(
    rollout_id: str,
    source: TokenSource,
    *,
    builder: str = PREFIX_MERGING,
    model: str = "",
    verified_response: dict[str, Any] | None = None,
    explicit_terminal_call_id: str | None = None,
    declared_response_id: str | None = None,
) -> dict[str, Any] | None:
    """The response of a rollout's main chain, with `trajectories` (every chain as a response), `metrics` and
    `mask_sample` beside it; None when nothing was captured. The rollout is frozen by it, not dropped.
    """
    built = await build_rollout(
        rollout_id,
        source,
        builder=builder,
        model=model,
        verified_response=verified_response,
        explicit_terminal_call_id=explicit_terminal_call_id,
        declared_response_id=declared_response_id,
    )
    if built.response is None:
        return None
    others = [project_main_chain_response(rollout_id, chain, model=model) for chain in built.build.chains[1:]]
    return {
        **built.response,
        "trajectories": [built.response, *others],
        "metrics": built.metrics(),
        "mask_sample": built.masked,
    }
