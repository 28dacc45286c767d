"""Searching the web with Tavily."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from resources_servers.sec_local_index.edgar_search_service import EdgarArgumentError, checked_day

TRIES = 3
PAUSES = (1.0, 2.0)
MAX_RESULTS = 20

_MAX_QUERY_CHARS = 400
_KEYS = ("title", "url", "content", "score", "published_date")


@dataclass(frozen=True)
class WebSearch:
    """`timeout` is in seconds, for each try; nothing after `max_end_date` is looked for."""

    api_key: str
    base_url: str
    timeout: float = 30.0
    max_end_date: str | None = None

    async def search(self, query: str, start_date: str | None, end_date: str | None, number_of_results: Any) -> str:
        """The results as JSON text, or an object with `error`."""
        try:
            body = self._body(query, start_date, end_date, number_of_results)
        except EdgarArgumentError as error:
            return json.dumps({"error": str(error)})
        problem = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(PAUSES[number - 1])
            try:
                return json.dumps(_results(await self._ask(body)), indent=2)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                problem = f"{type(error).__name__}: {error}"
        return json.dumps({"error": f"The web search failed: {problem}"})

    def _body(self, query: str, start_date: str | None, end_date: str | None, number_of_results: Any) -> dict[str, Any]:
        if not query.strip():
            raise EdgarArgumentError("search_query is empty: give words to search for")
        body: dict[str, Any] = {
            "query": query.strip()[:_MAX_QUERY_CHARS],
            "search_depth": "fast",
            "chunks_per_source": 1,
            "max_results": _count(number_of_results),
        }
        start = checked_day(start_date, "start_date") if start_date else None
        end = checked_day(end_date, "end_date") if end_date else self.max_end_date
        if end is not None and self.max_end_date is not None:
            end = min(end, self.max_end_date)
        if start is not None and end is not None and start > end:
            raise EdgarArgumentError(f"start_date {start} is after {end}, the last day that is searched")
        return body | {name: day for name, day in (("start_date", start), ("end_date", end)) if day is not None}

    async def _ask(self, body: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        timeout = aiohttp.ClientTimeout(total=self.timeout)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{self.base_url}/search", json=body, headers=headers) as answer,
        ):
            if answer.status >= 400:
                raise ValueError(f"HTTP {answer.status}")
            return await answer.json(content_type=None)


def _count(value: Any) -> int:
    try:
        return min(MAX_RESULTS, max(1, int(value)))
    except (TypeError, ValueError, OverflowError):
        raise EdgarArgumentError(f"number_of_results must be a whole number from 1 to {MAX_RESULTS}") from None


def _results(answer: Any) -> list[dict[str, Any]]:
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise ValueError("the answer has no results")
    return [{key: each[key] for key in _KEYS if key in each} for each in results if isinstance(each, dict)]
