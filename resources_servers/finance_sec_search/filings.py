"""The filings of a company."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from resources_servers.finance_sec_search.cache_files import METADATA_FOLDER, read_json, write_quietly
from resources_servers.finance_sec_search.company_tickers import Company
from resources_servers.finance_sec_search.fetching import FetchError, WebClient

DATA_URL = "https://data.sec.gov"
ARCHIVES_URL = "https://www.sec.gov/Archives/edgar/data"
MAX_COMPANIES_IN_MEMORY = 512

_FIELDS = ("accessionNumber", "form", "filingDate", "reportDate", "primaryDocument")


@dataclass(frozen=True)
class Filing:
    """Days are YYYY-MM-DD; `report_date` may be empty."""

    accession_number: str
    form: str
    filing_date: str
    report_date: str
    primary_document: str

    def url(self, cik: int) -> str:
        return f"{ARCHIVES_URL}/{cik}/{self.accession_number.replace('-', '')}/{self.primary_document}"


class FilingsStore:
    """Filings by company: from memory, else from the cache folder (None: no cache), else from the SEC."""

    def __init__(self, web: WebClient, *, cache: Path | None = None) -> None:
        self._web = web
        self._folder = None if cache is None else cache / METADATA_FOLDER
        self._known: dict[str, Sequence[Filing]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, cik: str) -> Sequence[Filing]:
        """All filings of a company by its ten-digit CIK, newest first. Raises FetchError."""
        if (known := self._known.get(cik)) is not None:
            return known
        lock = self._locks.setdefault(cik, asyncio.Lock())
        try:
            async with lock:
                if (known := self._known.get(cik)) is None:
                    known = await self._found(cik)
                    while len(self._known) >= MAX_COMPANIES_IN_MEMORY:
                        del self._known[next(iter(self._known))]
                    self._known[cik] = known
                return known
        finally:
            if not lock.locked():
                self._locks.pop(cik, None)

    async def _found(self, cik: str) -> Sequence[Filing]:
        file = None if self._folder is None else self._folder / f"{cik}.json"
        if file is not None and (cached := parse_filings(read_json(file))) is not None:
            return cached
        filings = await fetch_filings(self._web, cik)
        if file is not None:
            write_quietly(file, as_json(cik, filings))
        return filings


async def fetch_filings(web: WebClient, cik: str) -> list[Filing]:
    """All filings of a company from the SEC, those of its further files too. Raises FetchError."""
    main = await _object_at(web, f"{DATA_URL}/submissions/CIK{cik}.json")
    held = main.get("filings")
    held = held if isinstance(held, dict) else {}
    found = _of_columns(held.get("recent"))
    for further in held.get("files") or ():
        name = further.get("name") if isinstance(further, dict) else None
        if isinstance(name, str) and name.startswith(f"CIK{cik}") and "/" not in name:
            found += _of_columns(await _object_at(web, f"{DATA_URL}/submissions/{name}"))
    return _newest_first(found)


def parse_filings(content: Any) -> list[Filing] | None:
    """Filings from a file of the cache, or from an answer of the SEC; None for anything else."""
    if isinstance(content, dict) and isinstance(content.get("filings"), dict):
        return _newest_first(_of_columns(content["filings"].get("recent")))
    rows = content.get("filings") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        return None
    return _newest_first([filing for row in rows if (filing := _of_row(row)) is not None])


def as_json(cik: str, filings: Sequence[Filing]) -> bytes:
    return json.dumps({"cik": cik, "filings": [asdict(filing) for filing in filings]}).encode()


def matching(
    filings: Sequence[Filing], form_types: Sequence[str], start_date: str | None, end_date: str | None
) -> list[Filing]:
    """Those of these forms, in upper case (none: all), filed within these days, both included."""
    return [
        filing
        for filing in filings
        if (not form_types or filing.form.upper() in form_types)
        and (not start_date or filing.filing_date >= start_date)
        and (not end_date or filing.filing_date <= end_date)
    ]


def as_result(company: Company, filing: Filing) -> dict[str, str]:
    """A filing as a model reads it."""
    return {
        "ticker": company.ticker,
        "company_name": company.name,
        "form": filing.form,
        "filing_date": filing.filing_date,
        "report_date": filing.report_date,
        "accession_number": filing.accession_number,
        "filing_url": filing.url(company.cik),
    }


async def _object_at(web: WebClient, url: str) -> dict[str, Any]:
    page = await web.get(url)
    try:
        content = json.loads(page.text)
    except ValueError as error:
        raise FetchError(f"{url} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FetchError(f"{url} holds no object")
    return content


def _of_columns(columns: Any) -> list[Filing]:
    if not isinstance(columns, dict):
        return []
    found = (columns.get(name) for name in _FIELDS)
    lists: list[list[Any]] = [values if isinstance(values, list) else [] for values in found]
    return [Filing(*(str(value or "") for value in values)) for values in zip(*lists, strict=False)]


def _of_row(row: Any) -> Filing | None:
    if not isinstance(row, dict):
        return None
    names = ("accession_number", "form", "filing_date", "report_date", "primary_document")
    values = [str(row.get(name) or row.get(other) or "") for name, other in zip(names, _FIELDS, strict=True)]
    return Filing(*values) if values[0] else None


def _newest_first(filings: list[Filing]) -> list[Filing]:
    return sorted(filings, key=lambda filing: (filing.filing_date, filing.accession_number), reverse=True)
