"""Whether a rebuilt rollout may be trained on."""

from __future__ import annotations

from nemo_gym.token_id_capture.builder import BuildOutput
from nemo_gym.token_id_capture.terminal import TerminalAttribution


def is_masked(build: BuildOutput, terminal: TerminalAttribution, *, incomplete: bool) -> bool:
    """True when the main chain may not be what the rollout's reward was given for."""
    if incomplete or not build.main_chain:
        return True
    if build.notes.attributed:
        return False
    if terminal.is_declared or build.notes.terminal_is_broken:
        return True
    notes = build.notes
    return bool(notes.unresolved_retries or notes.unresolved_parents or len(notes.roots) != 1 or len(build.chains) != 1)
