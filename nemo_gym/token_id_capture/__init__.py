"""Training-token capture: the exact tokens of every model call of a rollout, rebuilt into one sequence to train on."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.consumer import trajectories_from_source
    from nemo_gym.token_id_capture.lineage import FileLineageStore, IncrementalLineageStore, InMemoryLineageStore
    from nemo_gym.token_id_capture.protocols import (
        CaptureLedger,
        CaptureLedgerCommit,
        LineageResolution,
        LineageResolver,
        TokenCaptureSnapshot,
        TokenSink,
        TokenSource,
    )
    from nemo_gym.token_id_capture.records import ParentResolutionStatus, TokenEntry
    from nemo_gym.token_id_capture.registry import (
        install_lineage_store,
        install_token_sink,
        install_token_source,
        installed_lineage_store,
        installed_token_sink,
        installed_token_source,
    )
    from nemo_gym.token_id_capture.sink import (
        CaptureContext,
        capture_tokens,
        commit_entry,
        current_capture_context,
        register_call_intent,
        reset_token_sink,
        resolve_parent,
        set_token_sink,
    )
    from nemo_gym.token_id_capture.store import TokenCaptureStore

# Every model server reads the config of this room; what it takes to capture is loaded by those that do.
_HOMES = {
    "consumer": ("trajectories_from_source",),
    "lineage": ("FileLineageStore", "InMemoryLineageStore", "IncrementalLineageStore"),
    "protocols": (
        "CaptureLedger",
        "CaptureLedgerCommit",
        "LineageResolution",
        "LineageResolver",
        "TokenCaptureSnapshot",
        "TokenSink",
        "TokenSource",
    ),
    "records": ("ParentResolutionStatus", "TokenEntry"),
    "registry": (
        "install_lineage_store",
        "install_token_sink",
        "install_token_source",
        "installed_lineage_store",
        "installed_token_sink",
        "installed_token_source",
    ),
    "sink": (
        "CaptureContext",
        "capture_tokens",
        "commit_entry",
        "current_capture_context",
        "register_call_intent",
        "reset_token_sink",
        "resolve_parent",
        "set_token_sink",
    ),
    "store": ("TokenCaptureStore",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CaptureContext",
    "CaptureLedger",
    "CaptureLedgerCommit",
    "FileLineageStore",
    "InMemoryLineageStore",
    "IncrementalLineageStore",
    "LineageResolution",
    "LineageResolver",
    "ParentResolutionStatus",
    "TokenCaptureSnapshot",
    "TokenCaptureStore",
    "TokenEntry",
    "TokenSink",
    "TokenSource",
    "capture_tokens",
    "commit_entry",
    "current_capture_context",
    "install_lineage_store",
    "install_token_sink",
    "install_token_source",
    "installed_lineage_store",
    "installed_token_sink",
    "installed_token_source",
    "register_call_intent",
    "reset_token_sink",
    "resolve_parent",
    "set_token_sink",
    "trajectories_from_source",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
