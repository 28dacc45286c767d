"""The stores of one server process, as its config asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nemo_gym.token_id_capture.config import TokenIdCaptureConfig, token_id_capture_config
from nemo_gym.token_id_capture.errors import TokenCaptureConfigError
from nemo_gym.token_id_capture.lineage import FileLineageStore, InMemoryLineageStore
from nemo_gym.token_id_capture.protocols import CaptureLedger, LineageResolver, TokenSink, TokenSource
from nemo_gym.token_id_capture.registry import installed_lineage_store, installed_token_sink, installed_token_source
from nemo_gym.token_id_capture.store import TokenCaptureStore


@dataclass(frozen=True)
class CaptureEndpoints:
    """Where a model server's tokens go, and where its calls' parents are looked up."""

    config: TokenIdCaptureConfig
    configured_sink: TokenSink | None
    token_store: TokenCaptureStore | None
    lineage_store: LineageResolver | None
    is_own_lineage_store: bool

    @property
    def ledger(self) -> CaptureLedger | None:
        """The lineage store as a ledger, with external staging."""
        has_ledger = self.config.external_staging and isinstance(self.lineage_store, CaptureLedger)
        return self.lineage_store if has_ledger else None  # type: ignore[return-value]

    async def close(self) -> None:
        """Close what was built here; what others installed is theirs."""
        lineage = self.lineage_store if self.is_own_lineage_store else None
        for endpoint in (self.configured_sink, self.token_store, lineage):
            if endpoint is not None:
                await endpoint.close()


def build_endpoints(global_config_dict: Any, *, num_workers: int | None = None) -> CaptureEndpoints | None:
    """The stores that a config asks for, None when capture is off. Raises TokenCaptureConfigError."""
    config = token_id_capture_config(global_config_dict)
    if not config.enabled:
        return None
    sink = None if config.external_staging else config.build_sink()
    uses_files = sink is None and installed_token_sink() is None and not config.external_staging
    store = TokenCaptureStore(config.require_dir()) if uses_files else None
    lineage = config.build_lineage_store()
    is_own = lineage is not None
    if lineage is None:
        lineage = installed_lineage_store()
    if lineage is None and store is not None:
        lineage, is_own = FileLineageStore(store.root), True
    _check_lineage(config, lineage, num_workers or 1)
    return CaptureEndpoints(config, sink, store, lineage, is_own)


def _check_lineage(config: TokenIdCaptureConfig, lineage: LineageResolver | None, num_workers: int) -> None:
    if config.external_staging and (
        not isinstance(lineage, CaptureLedger) or isinstance(lineage, InMemoryLineageStore)
    ):
        raise TokenCaptureConfigError(
            "token_id_capture.external_staging needs a lineage_store that keeps a ledger others can read, such as "
            "nemo_gym.token_id_capture.lineage:FileLineageStore with lineage_store_kwargs.root."
        )
    if num_workers > 1 and not (lineage is not None and lineage.is_process_shared()):
        raise TokenCaptureConfigError(
            f"The model server has {num_workers} workers, so token_id_capture needs a lineage_store that all of them "
            "share (the file store is one)."
        )


def build_source(config: TokenIdCaptureConfig) -> TokenSource:
    """Where finished rollouts are read from. Raises TokenCaptureConfigError when the config names no such place."""
    installed = installed_token_source()
    if installed is not None:
        return installed
    sink = config.build_sink() or installed_token_sink()
    if sink is None:
        return TokenCaptureStore(config.require_dir())
    if isinstance(sink, TokenSource):
        return sink
    raise TokenCaptureConfigError(
        f"token_id_capture.sink {type(sink).__name__} can't be read back (it lacks freeze and drop): install a token "
        "source, or set rebuild_response: false."
    )
