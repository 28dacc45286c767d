"""Which company a ticker stands for."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.finance_sec_search.cache_files import TICKERS, read_json, write_quietly
from resources_servers.finance_sec_search.fetching import FetchError, WebClient

TICKERS_URL = "https://www.sec.gov/files/company_tickers.json"
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries to have the table."""

LOG = logging.getLogger("finance_sec_search")


class TickerTableError(GymError, RuntimeError):
    """There is no table of tickers; nothing can be asked about companies without it."""


@dataclass(frozen=True)
class Company:
    ticker: str
    cik: int
    name: str

    @property
    def padded_cik(self) -> str:
        return f"{self.cik:010d}"


Tickers = Mapping[str, Company]


class TickerTable:
    """The table: from the cache folder if there is one (None: no cache), else from the SEC, once; `overlay` on top."""

    def __init__(self, web: WebClient, *, cache: Path | None = None, overlay: Tickers | None = None) -> None:
        self._web = web
        self._file = None if cache is None else cache / TICKERS
        self._overlay = overlay or {}
        self._loading: asyncio.Task[Tickers] | None = None
        cached = parse_tickers(read_json(self._file)) if self._file is not None else {}
        self._known: Tickers | None = {**cached, **self._overlay} if cached else None

    @property
    def is_loaded(self) -> bool:
        return self._known is not None

    async def get(self) -> Tickers:
        """The table by upper-case ticker. Raises TickerTableError when it can't be had; the next call tries again."""
        if self._known is not None:
            return self._known
        if self._loading is None or self._loading.done():
            self._loading = asyncio.get_running_loop().create_task(self._load())
        self._known = await asyncio.shield(self._loading)
        return self._known

    async def find(self, ticker: str) -> Company | None:
        """The company of a ticker, which may be written `BRK.B` for `BRK-B`. Raises TickerTableError."""
        known = await self.get()
        name = ticker.strip().upper()
        return known.get(name) or known.get(name.replace(".", "-")) or known.get(name.replace("-", "."))

    async def _load(self) -> Tickers:
        problem: Exception | str = ""
        for pause in (*PAUSES, None):
            try:
                text = (await self._web.get(TICKERS_URL, retries=0)).text
                if found := parse_tickers(json.loads(text)):
                    if self._file is not None:
                        write_quietly(self._file, text.encode())
                    return {**found, **self._overlay}
                problem = "the answer names no companies"
            except (FetchError, ValueError) as error:
                problem = error
            if pause is None or self._web.offline:
                break
            await asyncio.sleep(pause)
        raise TickerTableError(
            f"The table of tickers can't be had ({problem}). Fill a cache once with scripts/prefetch_sec_metadata.py, "
            "and start with +use_cache=true +cache_dir=<folder>."
        )


def read_overlay(path: Path) -> Tickers:
    """Further companies from a JSON file. TickerTableError unless it is an object that names some, or none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TickerTableError(f"supplementary_tickers_fpath: {path} can't be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise TickerTableError(f"supplementary_tickers_fpath: {path} must hold an object, a company for each ticker")
    found = parse_tickers(content)
    if len(found) < len(content):
        LOG.warning("%s: %d of %d entries name no company.", path, len(content) - len(found), len(content))
    return found


def parse_tickers(content: Any) -> dict[str, Company]:
    """The companies of a table as the SEC has it, `{"0": {"cik_str", "ticker", "title"}}`, or by ticker,
    `{"ABC": {"cik", "name"}}` or `{"ABC": 123}`; what can't be read is left out."""
    entries = content.items() if isinstance(content, dict) else enumerate(content if isinstance(content, list) else ())
    companies = (_company(str(name), entry) for name, entry in entries)
    return {company.ticker: company for company in companies if company is not None}


def _company(name: str, entry: Any) -> Company | None:
    fields = entry if isinstance(entry, dict) else {"cik": entry}
    ticker = str(fields.get("ticker") or name).strip().upper()
    title = fields.get("title") or fields.get("name") or fields.get("company_name") or ticker
    digits = str(fields.get("cik_str") or fields.get("cik") or "").strip()
    if not ticker or not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    return Company(ticker, int(digits), str(title))
