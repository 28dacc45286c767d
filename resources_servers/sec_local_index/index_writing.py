"""Making an index of filings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from resources_servers.sec_local_index.sec_urls import canonical_url_key

_SCHEMA = """
CREATE TABLE documents (
    id INTEGER PRIMARY KEY, accession_number TEXT, cik TEXT, ticker TEXT, company_name TEXT, form_type TEXT,
    document_type TEXT, description TEXT, filing_date TEXT, url TEXT, canonical_url_key TEXT, source_path TEXT
);
CREATE INDEX documents_by_key ON documents (canonical_url_key);
CREATE VIRTUAL TABLE documents_fts USING fts5 (content, content='');
"""


@dataclass(frozen=True)
class IndexedDocument:
    """A document with its text. `source_path` is where a dump keeps it, relative to the dump."""

    accession_number: str
    cik: str
    ticker: str
    company_name: str
    form_type: str
    filing_date: str
    url: str
    text: str
    document_type: str | None = None
    description: str | None = None
    source_path: str | None = None


def write_index(path: Path, documents: Iterable[IndexedDocument]) -> int:
    """Write an index, in place of one that is there, and say how many documents it holds."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.unlink(missing_ok=True)
    count = 0
    with closing(sqlite3.connect(unfinished)) as connection, connection:
        connection.executescript(_SCHEMA)
        for count, document in enumerate(documents, start=1):
            fields = (
                count,
                document.accession_number,
                document.cik,
                document.ticker,
                document.company_name,
                document.form_type,
                document.document_type or document.form_type,
                document.description,
                document.filing_date,
                document.url,
                canonical_url_key(document.url),
                document.source_path,
            )
            connection.execute(f"INSERT INTO documents VALUES ({', '.join('?' * len(fields))})", fields)
            connection.execute("INSERT INTO documents_fts (rowid, content) VALUES (?, ?)", (count, document.text))
    unfinished.replace(path)
    return count
