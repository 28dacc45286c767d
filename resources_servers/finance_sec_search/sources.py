"""Where a server with given settings has its answers from."""

from __future__ import annotations

from pathlib import Path

from resources_servers.finance_sec_search.fetching import RateLimiter, WebClient
from resources_servers.finance_sec_search.settings import FinanceAgentResourcesServerConfig, file_at
from resources_servers.sec_local_index.edgar_search_service import EdgarSearchService
from resources_servers.sec_local_index.live_edgar_search import LiveEdgarSearch
from resources_servers.sec_local_index.local_edgar_search import LocalEdgarSearch


def web_client(config: FinanceAgentResourcesServerConfig) -> WebClient:
    """How pages are fetched."""
    sites = {"https://www.sec.gov": config.sec_base_url, "https://data.sec.gov": config.sec_data_base_url}
    return WebClient(
        user_agent=config.user_agent,
        limiter=RateLimiter(config.requests_per_second),
        base_urls={site: other.rstrip("/") for site, other in sites.items() if other.rstrip("/") != site},
        timeout=config.request_timeout,
        connections_per_host=config.max_connections_per_host,
        max_retries=config.max_retries,
        max_bytes=config.max_page_bytes,
        allow_private=config.allow_private_addresses,
        offline=config.offline,
    )


def local_index(config: FinanceAgentResourcesServerConfig) -> LocalEdgarSearch | None:
    """The local index, if there is to be one. Raises LocalIndexError."""
    if not config.local_edgar_index_path:
        return None
    metadata, metrics = config.local_edgar_metadata_path, config.local_edgar_metrics_dir
    return LocalEdgarSearch(
        file_at(config.local_edgar_index_path),
        metadata_path=file_at(metadata) if metadata else None,
        metrics_dir=Path(metrics).expanduser() if metrics else None,
        seconds=config.request_timeout,
    )


def edgar_search_service(
    config: FinanceAgentResourcesServerConfig, index: LocalEdgarSearch | None
) -> EdgarSearchService | None:
    """Where `edgar_search` looks; None where it is switched off."""
    if config.edgar_search_mode == "local" and index is not None:
        return EdgarSearchService(index, max_end_date=config.max_end_date)
    if config.edgar_search_mode == "live" and config.sec_api_key:
        live = LiveEdgarSearch(
            config.sec_api_key,
            url=config.sec_api_url,
            seconds=config.request_timeout,
            max_retries=config.max_retries,
        )
        return EdgarSearchService(live, max_end_date=config.max_end_date)
    return None
