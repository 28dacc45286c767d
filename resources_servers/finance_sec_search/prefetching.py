"""Filling the cache once, so that a run needs nothing of the SEC."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.errors import GymError
from resources_servers.finance_sec_search.cache_files import METADATA_FOLDER, TICKERS, read_json, write_whole
from resources_servers.finance_sec_search.company_tickers import Company, Tickers, TickerTable, parse_tickers
from resources_servers.finance_sec_search.fetching import FetchError, WebClient
from resources_servers.finance_sec_search.filings import as_json, fetch_filings, parse_filings

CHECKSUMS = "prefetch_checksums.json"
"""The SHA-256 of every file that was fetched, by its path in the cache folder."""


class PrefetchError(GymError):
    """The cache can't be filled, or isn't whole."""


@dataclass
class Outcome:
    """What became of the companies asked for, by ticker."""

    fetched: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Prefetch:
    """Fills a cache folder, file by file; what is there and whole is kept, so that an interrupted one goes on."""

    def __init__(self, web: WebClient, folder: Path) -> None:
        self._web = web
        self._folder = folder
        recorded = read_json(folder / CHECKSUMS)
        self._checksums: dict[str, str] = recorded if isinstance(recorded, dict) else {}

    async def tickers(self, overlay: Tickers, *, refresh: bool = False) -> Tickers:
        """The table of tickers, written with the overlay in it. Raises TickerTableError."""
        known: Tickers = {}
        if not refresh and self._is_whole(TICKERS):
            known = parse_tickers(read_json(self._folder / TICKERS))
        if not known:
            known = await TickerTable(self._web).get()
        merged = {**known, **overlay}
        entries = {name: {"cik": company.cik, "name": company.name} for name, company in sorted(merged.items())}
        self._write(TICKERS, json.dumps(entries).encode())
        return merged

    async def filings(self, tickers: Iterable[str], table: Tickers, *, refresh: bool = False) -> Outcome:
        """Fetch the filings of companies, one after the other: the SEC's limit leaves nothing to gain."""
        outcome = Outcome()
        for ticker in dict.fromkeys(name.strip().upper() for name in tickers):
            company = table.get(ticker) or table.get(ticker.replace(".", "-"))
            if company is None:
                outcome.unknown.append(ticker)
                continue
            try:
                is_new = await self._fetched(company, refresh=refresh)
            except FetchError as error:
                outcome.failed[ticker] = str(error)
                continue
            (outcome.fetched if is_new else outcome.kept).append(ticker)
        return outcome

    async def _fetched(self, company: Company, *, refresh: bool) -> bool:
        name = f"{METADATA_FOLDER}/{company.padded_cik}.json"
        if not refresh and self._is_whole(name) and parse_filings(read_json(self._folder / name)) is not None:
            return False
        filings = await fetch_filings(self._web, company.padded_cik)
        self._write(name, as_json(company.padded_cik, filings))
        return True

    def _write(self, name: str, content: bytes) -> None:
        write_whole(self._folder / name, content)
        self._checksums[name] = hashlib.sha256(content).hexdigest()
        write_whole(self._folder / CHECKSUMS, json.dumps(self._checksums, indent=1, sort_keys=True).encode())

    def _is_whole(self, name: str) -> bool:
        return self._checksums.get(name) is not None and checksum(self._folder / name) == self._checksums[name]


def checksum(file: Path) -> str | None:
    """The SHA-256 of a file; None when it can't be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def broken_files(folder: Path) -> list[str]:
    """Files of a cache that are missing or not as they were fetched. PrefetchError for a folder nobody prefetched."""
    recorded = read_json(folder / CHECKSUMS)
    if not isinstance(recorded, dict):
        raise PrefetchError(f"{folder} has no {CHECKSUMS}: fill it with scripts/prefetch_sec_metadata.py")
    return [name for name, wanted in sorted(recorded.items()) if checksum(folder / name) != wanted]
