"""Small indexes for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from resources_servers.sec_local_index.index_writing import IndexedDocument, write_index


def document(number: int, text: str, **fields: Any) -> IndexedDocument:
    """A document of company 1000+number, filed on the day of that number in March 2023, unless `fields` say more."""
    cik = str(fields.get("cik", 1000 + number))
    accession = f"{int(cik):010d}-23-{number:06d}"
    name = f"doc{number}.htm"
    given = {
        "accession_number": accession,
        "ticker": f"T{number}",
        "company_name": f"Company {number}",
        "form_type": "10-K",
        "filing_date": f"2023-03-{number:02d}",
        "url": f"https://www.sec.gov/Archives/edgar/data/{int(cik)}/{accession.replace('-', '')}/{name}",
        "text": text,
        **fields,
    }
    return IndexedDocument(**{**given, "cik": cik})


def build_index(path: Path, documents: list[IndexedDocument] | None = None) -> Path:
    """An index of three documents, or of those given."""
    own = [
        document(1, "net income rose while revenue fell", source_path="a/doc1.htm"),
        document(2, "revenue rose; the auditor resigned", form_type="8-K", cik="0000001002"),
        document(3, "income from leasing of ships, and revenues"),
    ]
    write_index(path, own if documents is None else documents)
    return path


def build_varied_index(path: Path, count: int = 250) -> Path:
    """An index of many documents, one a day over several forms and companies."""
    forms = ("10-K", "10-Q", "8-K")
    return build_index(
        path,
        [
            document(
                number,
                f"common words and number{number}",
                cik=str(2000 + number % 5),
                form_type=forms[number % 3],
                filing_date=f"{2015 + number // 100}-{1 + number % 12:02d}-{1 + number % 28:02d}",
            )
            for number in range(1, count + 1)
        ],
    )
