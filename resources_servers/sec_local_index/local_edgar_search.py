"""Full-text search of filings in an SQLite file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from resources_servers.sec_local_index.edgar_search_service import (
    PAGE_SIZE,
    EdgarRequest,
    EdgarSearchError,
    edgar_request,
)
from resources_servers.sec_local_index.index_files import (
    MAX_BYTES_WITHOUT_SIDECAR,
    META_COLUMNS,
    LocalIndexError,
    check_sidecar,
    default_sidecar_path,
    document_count,
    file_uri,
    open_for_reading,
)
from resources_servers.sec_local_index.query_language import translate_query
from resources_servers.sec_local_index.sec_urls import SecArchivesUrl, canonical_url_key

__all__ = [
    "LocalEdgarRequest",
    "LocalEdgarSearch",
    "LocalIndexError",
    "OutOfCoverageError",
    "canonical_url_key",
    "default_sidecar_path",
    "normalize_request",
    "translate_query",
]

LocalEdgarRequest = EdgarRequest
normalize_request = edgar_request

SECONDS = 30.0
_STEPS_BETWEEN_LOOKS = 10_000
LOG = logging.getLogger("sec_local_index")


class OutOfCoverageError(EdgarSearchError):
    """No filing of the index is from the days asked for."""


class LocalEdgarSearch:
    """An index in an SQLite file, with its metadata beside it where that file is (`<index>.metadata`, or
    `metadata_path`). Nothing is written to either; both must stay as they are while they are used.

    A search takes at most `seconds`. With `metrics_dir` a line of JSON about each goes to a file there. Raises
    LocalIndexError for files that can't be used.
    """

    def __init__(
        self,
        index_path: str | Path,
        *,
        metadata_path: str | Path | None = None,
        metrics_dir: str | Path | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._index = Path(index_path)
        self._sidecar = _sidecar_of(self._index, metadata_path)
        self._seconds = seconds
        self._metrics = None if metrics_dir is None else _metrics_file(Path(metrics_dir))
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        connection = self._connection()
        documents = document_count(connection, self._index)
        if self._sidecar is not None:
            check_sidecar(self._sidecar, self._index, documents)
        elif self._index.stat().st_size > MAX_BYTES_WITHOUT_SIDECAR:
            raise LocalIndexError(
                f"{self._index} is larger than 1 GiB and has no metadata beside it, so searches would be slow: make it "
                "with resources_servers/sec_local_index/scripts/build_local_edgar_metadata.py"
            )
        self._attach(connection)
        self.coverage = self._held_days(connection)
        self._columns = {row[1] for row in connection.execute("PRAGMA table_info(documents)")}

    async def search(self, request: EdgarRequest) -> list[dict[str, Any]]:
        """The records of a page, best first. Raises EdgarSearchError."""
        return await asyncio.to_thread(self.find, request)

    def find(self, request: EdgarRequest) -> list[dict[str, Any]]:
        """`search` without an event loop."""
        first, last = self.coverage
        if request.end_date < first or request.start_date > last:
            raise OutOfCoverageError(
                f"The index holds filings from {first} to {last}, none from {request.start_date} to {request.end_date}."
            )
        expression = translate_query(request.query)
        started = time.monotonic()
        rows = self._rows(request, expression, started + self._seconds)
        self._note(request, time.monotonic() - started, len(rows))
        return [_record(row) for row in rows]

    def source_path(self, document: SecArchivesUrl) -> str | None:
        """Where the dump that the index was made of keeps a document, relative to the dump, if the index knows."""
        if not {"canonical_url_key", "source_path"} <= self._columns:
            return None
        dashed = f"{document.cik}:{document.dashed_accession}:{document.document}"
        query = (
            "SELECT source_path FROM documents WHERE canonical_url_key IN (?, ?) AND source_path IS NOT NULL LIMIT 1"
        )
        try:
            row = self._connection().execute(query, (document.key, dashed)).fetchone()
        except sqlite3.Error as error:
            LOG.warning("%s can't be asked for %s: %s", self._index, document.key, error)
            return None
        return None if row is None else str(row[0])

    def close(self) -> None:
        """Close all connections; the index may be used again."""
        with self._lock:
            self._local = threading.local()
            while self._connections:
                self._connections.pop().close()

    def _rows(self, request: EdgarRequest, expression: str, deadline: float) -> list[Any]:
        connection = self._connection()
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
        try:
            return connection.execute(*self._statement(request, expression)).fetchall()
        except sqlite3.Error as error:
            if time.monotonic() > deadline:
                complaint = f"The search took more than {self._seconds:g} s: ask for rarer words or fewer days."
                raise EdgarSearchError(complaint) from error
            raise EdgarSearchError(f"The index can't be searched: {error}") from error
        finally:
            connection.set_progress_handler(None, 0)

    def _statement(self, request: EdgarRequest, expression: str) -> tuple[str, list[Any]]:
        conditions = ["documents_fts MATCH ?", "substr(d.filing_date, 1, 10) BETWEEN ? AND ?"]
        values: list[Any] = [expression, request.start_date, request.end_date]
        if request.form_types:
            conditions.append(f"upper(d.form_type) IN ({_marks(request.form_types)})")
            values += request.form_types
        if request.ciks:
            conditions.append(f"CAST(d.cik AS INTEGER) IN ({_marks(request.ciks)})")
            values += [int(cik) for cik in request.ciks]
        columns = ", ".join(f"d.{column}" for column in META_COLUMNS[1:])
        statement = (
            f"SELECT {columns} FROM documents_fts JOIN {self._documents()} AS d ON d.id = documents_fts.rowid "
            f"WHERE {' AND '.join(conditions)} ORDER BY documents_fts.rank, d.filing_date DESC, d.id LIMIT ? OFFSET ?"
        )
        return statement, [*values, PAGE_SIZE, (request.page - 1) * PAGE_SIZE]

    def _documents(self) -> str:
        return "documents" if self._sidecar is None else "sidecar.documents_meta"

    def _held_days(self, connection: sqlite3.Connection) -> tuple[str, str]:
        query = f"SELECT min(substr(filing_date, 1, 10)), max(substr(filing_date, 1, 10)) FROM {self._documents()}"
        try:
            first, last = connection.execute(query).fetchone()
        except sqlite3.Error as error:
            raise LocalIndexError(f"{self._index} is no index of filings: {error}") from error
        if first is None:
            raise LocalIndexError(f"{self._index} holds no documents")
        return str(first), str(last)

    def _connection(self) -> sqlite3.Connection:
        """This thread's own."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = open_for_reading(self._index)
            if hasattr(self, "coverage"):
                self._attach(connection)
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection

    def _attach(self, connection: sqlite3.Connection) -> None:
        if self._sidecar is not None:
            connection.execute("ATTACH DATABASE ? AS sidecar", (file_uri(self._sidecar, "mode=ro"),))

    def _note(self, request: EdgarRequest, seconds: float, results: int) -> None:
        if self._metrics is None:
            return
        line = json.dumps({"query": request.query, "page": request.page, "seconds": seconds, "results": results})
        try:
            with self._lock, self._metrics.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            LOG.warning("The search can't be noted in %s: %s", self._metrics, error)


def _sidecar_of(index: Path, given: str | Path | None) -> Path | None:
    if given is not None:
        return Path(given)
    usual = default_sidecar_path(index)
    return usual if usual.exists() else None


def _metrics_file(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"edgar_search_{os.getpid()}.jsonl"


def _marks(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))


def _record(row: tuple[Any, ...]) -> dict[str, Any]:
    accession, cik, ticker, company, form, document_type, description, filed, url = row
    return {
        "accessionNo": accession,
        "cik": str(cik),
        "companyNameLong": company,
        "ticker": ticker,
        "description": description,
        "formType": form,
        "type": document_type,
        "filingUrl": url,
        "filedAt": filed,
    }
