"""Addresses of documents in the SEC's archives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

_HOSTS = frozenset({"sec.gov", "www.sec.gov"})
_DOCUMENT = re.compile(
    r"/Archives/edgar/data/0*(\d{1,10})/(\d{18}|\d{10}-\d{2}-\d{6})/([A-Za-z0-9_][\w.\-]*)", re.ASCII
)
_SUBMISSION = re.compile(
    r"/Archives/edgar/data/0*(\d{1,10})/((\d{10}-\d{2}-\d{6})(?:-index)?\.(?:txt|html?))", re.ASCII
)


@dataclass(frozen=True)
class SecArchivesUrl:
    """A document of a filing: `cik` without leading zeros, `accession` as 18 digits, `name` as it was written."""

    cik: str
    accession: str
    name: str

    @property
    def document(self) -> str:
        """The name in lower case."""
        return self.name.lower()

    @property
    def url(self) -> str:
        return f"https://www.sec.gov/Archives/edgar/data/{self.cik}/{self.accession}/{self.name}"

    @property
    def padded_cik(self) -> str:
        return self.cik.zfill(10)

    @property
    def dashed_accession(self) -> str:
        return f"{self.accession[:10]}-{self.accession[10:12]}-{self.accession[12:]}"

    @property
    def key(self) -> str:
        """The same for every way of writing the address."""
        return f"{self.cik}:{self.accession}:{self.document}"


def parse_sec_archives_url(url: str) -> SecArchivesUrl | None:
    """The document that an address names, the SEC's own viewer (`/ix?doc=…`) included; None for any other address."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or host not in _HOSTS:
        return None
    path = parts.path
    if path.rstrip("/").lower() in ("/ix", "/ixviewer/ix.html"):
        path = next(iter(parse_qs(parts.query).get("doc", [])), "")
    return _document_at(unquote(path))


def canonical_url_key(url: str) -> str | None:
    """`cik:accession:filename` of an address in the archives; None for any other."""
    parsed = parse_sec_archives_url(url)
    return None if parsed is None else parsed.key


def _document_at(path: str) -> SecArchivesUrl | None:
    if found := _DOCUMENT.fullmatch(path):
        cik, accession, name = found.groups()
    elif found := _SUBMISSION.fullmatch(path):
        cik, name, accession = found.groups()
    else:
        return None
    return SecArchivesUrl(cik, accession.replace("-", ""), name)
