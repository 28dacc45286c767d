"""Full-text search of filings through sec-api.io."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from resources_servers.sec_local_index.edgar_search_service import EdgarRequest, EdgarSearchError

API_URL = "https://api.sec-api.io/full-text-search"
RECORD_KEYS = (
    "accessionNo",
    "cik",
    "companyNameLong",
    "ticker",
    "description",
    "formType",
    "type",
    "filingUrl",
    "filedAt",
)
FIRST_PAUSE_SECONDS = 1.0
"""Pauses double from here."""

_BUSY = frozenset({429, 503})
_MAX_ERROR_CHARS = 300


class LiveEdgarSearch:
    """`seconds` bounds each try; a busy API and a network that fails are asked again up to `max_retries` times."""

    def __init__(self, api_key: str, *, url: str = API_URL, seconds: float = 30.0, max_retries: int = 3) -> None:
        self._headers = {"Authorization": api_key}
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._max_retries = max_retries

    async def search(self, request: EdgarRequest) -> list[dict[str, Any]]:
        """The records of a page. Raises EdgarSearchError when the API can't be asked or refuses."""
        payload = build_payload(request)
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            for number in range(self._max_retries + 1):
                if number:
                    await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (number - 1))
                try:
                    async with session.post(self._url, json=payload, headers=self._headers) as answer:
                        if answer.status == 200:
                            return select_filings(await answer.json(content_type=None))
                        problem = f"HTTP {answer.status}: {(await answer.text(errors='replace'))[:_MAX_ERROR_CHARS]}"
                        if answer.status not in _BUSY:
                            break
                except (aiohttp.ClientError, TimeoutError) as error:
                    problem = f"{type(error).__name__}: {error}"
                except ValueError:
                    problem = "the answer is not JSON"
                    break
        raise EdgarSearchError(f"The search service can't be used now ({problem}).")


def build_payload(request: EdgarRequest) -> dict[str, Any]:
    """The body of a request to the API."""
    payload: dict[str, Any] = {
        "query": request.query,
        "startDate": request.start_date,
        "endDate": request.end_date,
        "page": str(request.page),
    }
    if request.form_types:
        payload["formTypes"] = list(request.form_types)
    if request.ciks:
        payload["ciks"] = [cik.zfill(10) for cik in request.ciks]
    return payload


def select_filings(answer: Any) -> list[dict[str, Any]]:
    """The records of an answer, of each what is known by name. EdgarSearchError for an answer without records."""
    filings = answer.get("filings") if isinstance(answer, dict) else None
    if not isinstance(filings, list):
        raise EdgarSearchError("The search service can't be used now (its answer has no filings).")
    return [{key: filing.get(key) for key in RECORD_KEYS} for filing in filings if isinstance(filing, dict)]
