"""The files of a local index: opening them for reading only, and telling whether they belong together."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from urllib.parse import quote

from nemo_gym.errors import GymError

SCHEMA_VERSION = 1
MAX_BYTES_WITHOUT_SIDECAR = 1 << 30
META_COLUMNS = (
    "id",
    "accession_number",
    "cik",
    "ticker",
    "company_name",
    "form_type",
    "document_type",
    "description",
    "filing_date",
    "url",
)
_BLOCK = 1 << 16


class LocalIndexError(GymError):
    """A local index can't be used; the message says which file and why."""


def default_sidecar_path(index_path: str | Path) -> Path:
    """Where the metadata of an index is kept: `<index>.metadata`."""
    index = Path(index_path)
    return index.with_name(f"{index.name}.metadata")


def open_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, also on a file system that nobody can write to."""
    if not path.is_file():
        raise LocalIndexError(f"there is no index at {path}: set local_edgar_index_path to a file that is there")
    problem: sqlite3.Error | None = None
    for mode in ("mode=ro", "immutable=1"):
        try:
            connection = sqlite3.connect(file_uri(path, mode), uri=True, check_same_thread=False)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.Error as error:
            problem = error
    raise LocalIndexError(f"{path} can't be read as an SQLite file: {problem}")


def file_uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?{mode}"


def document_count(connection: sqlite3.Connection, path: Path) -> int:
    """How many documents an index holds. LocalIndexError when it has no such tables."""
    try:
        connection.execute("SELECT rowid FROM documents_fts LIMIT 1").fetchone()
        count: int = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
    except sqlite3.Error as error:
        raise LocalIndexError(f"{path} is no index of filings: {error}") from error
    return count


def fingerprint(path: Path) -> str:
    """The same for copies of a file: its size, and its first, middle and last block, hashed."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for position in sorted({0, size // 2, max(0, size - _BLOCK)}):
            file.seek(position)
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def check_sidecar(sidecar: Path, index: Path, documents: int) -> None:
    """LocalIndexError unless the side-car file was made for exactly this index."""
    connection = open_for_reading(sidecar)
    try:
        facts = dict(connection.execute("SELECT name, value FROM index_facts").fetchall())
        rows = connection.execute("SELECT count(*) FROM documents_meta").fetchone()[0]
    except sqlite3.Error as error:
        raise LocalIndexError(f"{sidecar} is no metadata of an index: {error}") from error
    finally:
        connection.close()
    found = (facts.get("schema_version"), facts.get("document_count"), str(rows), facts.get("fingerprint"))
    wanted = (str(SCHEMA_VERSION), str(documents), str(documents), fingerprint(index))
    for name, has, needs in zip(
        ("schema version", "document count", "rows", "fingerprint"), found, wanted, strict=True
    ):
        if has != needs:
            raise LocalIndexError(
                f"{sidecar} doesn't belong to {index} (its {name} is {has}, not {needs}): make it again with "
                "resources_servers/sec_local_index/scripts/build_local_edgar_metadata.py"
            )
