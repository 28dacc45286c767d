"""Sink, source and lineage store that code in this process has put in place of the configured ones."""

from __future__ import annotations

from nemo_gym.token_id_capture.protocols import LineageResolver, TokenSink, TokenSource

_sink: TokenSink | None = None
_source: TokenSource | None = None
_lineage_store: LineageResolver | None = None


def install_token_sink(sink: TokenSink | None) -> None:
    """Use `sink` in this process where the config names none; None takes it away."""
    global _sink
    _sink = sink


def installed_token_sink() -> TokenSink | None:
    return _sink


def install_token_source(source: TokenSource | None) -> None:
    """Read captured rollouts from `source` in this process; None takes it away."""
    global _source
    _source = source


def installed_token_source() -> TokenSource | None:
    return _source


def install_lineage_store(store: LineageResolver | None) -> None:
    """Look parents up in `store` in this process where the config names none; None takes it away."""
    global _lineage_store
    _lineage_store = store


def installed_lineage_store() -> LineageResolver | None:
    return _lineage_store
