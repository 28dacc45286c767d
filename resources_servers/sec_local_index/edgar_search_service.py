"""`edgar_search` as a model calls it: arguments read leniently, dates kept before a cutoff, answers as JSON text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from nemo_gym.errors import GymError

DEFAULT_CUTOFF = "2025-04-07"
FIRST_DATE = "1900-01-01"
PAGE_SIZE = 100
MAX_PAGE = 1_000

_MAX_QUERY_CHARS = 2_000
_MAX_LIST_CHARS = 20_000
_MAX_LIST_ITEMS = 200
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class EdgarSearchError(GymError):
    """A search that can't be made, or came to nothing; the text is for the model that asked."""


class EdgarArgumentError(EdgarSearchError, ValueError):
    """An argument says nothing that can be searched for."""


@dataclass(frozen=True)
class EdgarRequest:
    """A search: dates are inclusive, `ciks` have no leading zeros, pages count from 1 and hold 100 records."""

    query: str
    form_types: tuple[str, ...] = ()
    ciks: tuple[str, ...] = ()
    start_date: str = FIRST_DATE
    end_date: str = DEFAULT_CUTOFF
    page: int = 1


class EdgarBackend(Protocol):
    """Where searches are made."""

    async def search(self, request: EdgarRequest) -> list[dict[str, Any]]:
        """The records of a page, each with the keys of sec-api.io. Raises EdgarSearchError."""


class EdgarSearchService:
    """Searches a backend; nothing filed after `max_end_date` is found."""

    def __init__(self, backend: EdgarBackend, *, max_end_date: str | None = None) -> None:
        self._backend = backend
        self.cutoff = checked_day(max_end_date, "max_end_date") if max_end_date else DEFAULT_CUTOFF

    async def search(
        self,
        search_query: str,
        form_types: Any = None,
        ciks: Any = None,
        start_date: str | None = FIRST_DATE,
        end_date: str | None = None,
        page: Any = 1,
        top_n_results: Any = PAGE_SIZE,
    ) -> str:
        """The records as JSON text, or an object with `error`."""
        try:
            request = edgar_request(search_query, form_types, ciks, start_date, end_date, page, cutoff=self.cutoff)
            wanted = _whole_number(top_n_results, "top_n_results", most=PAGE_SIZE)
            records = await self._backend.search(request)
        except EdgarSearchError as error:
            return json.dumps({"error": str(error)})
        return json.dumps(records[:wanted], indent=2)


def edgar_request(
    search_query: str,
    form_types: Any = None,
    ciks: Any = None,
    start_date: str | None = FIRST_DATE,
    end_date: str | None = None,
    page: Any = 1,
    *,
    cutoff: str = DEFAULT_CUTOFF,
) -> EdgarRequest:
    """A request from what a model wrote. EdgarArgumentError says what is wrong with it."""
    query = search_query.strip()
    if not query:
        raise EdgarArgumentError("search_query is empty: give words to search for")
    if len(query) > _MAX_QUERY_CHARS:
        raise EdgarArgumentError(f"search_query is longer than {_MAX_QUERY_CHARS} characters: give a few words")
    start = checked_day(start_date or FIRST_DATE, "start_date")
    end = min(checked_day(end_date, "end_date") if end_date else cutoff, cutoff)
    if start > cutoff:
        raise EdgarArgumentError(f"start_date {start} is after {cutoff}, the last day that can be searched")
    if start > end:
        raise EdgarArgumentError(f"start_date {start} is after end_date {end}")
    return EdgarRequest(
        query,
        tuple(form.upper() for form in string_list(form_types, "form_types")),
        tuple(_cik(cik) for cik in string_list(ciks, "ciks")),
        start,
        end,
        _whole_number(page, "page", most=MAX_PAGE),
    )


def coerce_stringified_collection(value: Any) -> Any:
    """The list that a text spells as JSON or as Python does; anything else unchanged."""
    if not isinstance(value, str) or len(value) > _MAX_LIST_CHARS:
        return value
    text = value.strip()
    if text[:1] not in ("[", "(", "{"):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            parsed = read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(parsed, list | tuple | set | frozenset):
            return list(parsed)
        if isinstance(parsed, dict):
            return parsed
    return value


def string_list(value: Any, name: str) -> list[str]:
    """The texts of a list argument, however it is written: none for None, one for a text, several with commas."""
    value = coerce_stringified_collection(value)
    items: Iterable[Any] = value.split(",") if isinstance(value, str) else [value]
    if value is None:
        items = ()
    elif isinstance(value, list | tuple):
        items = value
    texts = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise EdgarArgumentError(f"{name} must be a list of texts")
        texts.append(str(item).strip())
    if len(texts) > _MAX_LIST_ITEMS:
        raise EdgarArgumentError(f"{name} has more than {_MAX_LIST_ITEMS} items")
    return [text for text in texts if text]


def checked_day(text: str, name: str) -> str:
    """A day as YYYY-MM-DD. Raises EdgarArgumentError for what is none."""
    day = text.strip()
    try:
        if not _DAY.fullmatch(day):
            raise ValueError
        date.fromisoformat(day)
    except ValueError:
        raise EdgarArgumentError(f"{name} is {day[:40]!r}: write a day as YYYY-MM-DD") from None
    return day


def _cik(text: str) -> str:
    digits = text.upper().removeprefix("CIK").strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise EdgarArgumentError(f"{text[:40]!r} is no CIK: give its number, as in 320193")
    return digits.lstrip("0") or "0"


def _whole_number(value: Any, name: str, *, most: int) -> int:
    try:
        number = int(value) if isinstance(value, int | str) or (isinstance(value, float) and value.is_integer()) else 0
    except ValueError:
        number = 0
    if not 1 <= number <= most:
        raise EdgarArgumentError(f"{name} must be a whole number from 1 to {most}")
    return number
