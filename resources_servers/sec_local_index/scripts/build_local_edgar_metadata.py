"""Write the metadata of a local index beside it, so that searches needn't read the index's own large table.

python resources_servers/sec_local_index/scripts/build_local_edgar_metadata.py INDEX [--output FILE]
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nemo_gym.errors import GymError
from resources_servers.sec_local_index.index_files import (
    META_COLUMNS,
    SCHEMA_VERSION,
    default_sidecar_path,
    document_count,
    fingerprint,
    open_for_reading,
)


def build(index_path: str | Path, sidecar_path: str | Path | None = None) -> Path:
    """Write the metadata of an index, in place of what is there, and say where. Raises LocalIndexError."""
    index = Path(index_path)
    sidecar = default_sidecar_path(index) if sidecar_path is None else Path(sidecar_path)
    unfinished = sidecar.with_name(f"{sidecar.name}.tmp")
    unfinished.unlink(missing_ok=True)
    columns = ", ".join(META_COLUMNS)
    with closing(open_for_reading(index)) as source, closing(sqlite3.connect(unfinished)) as target:
        facts = {
            "schema_version": SCHEMA_VERSION,
            "document_count": document_count(source, index),
            "fingerprint": fingerprint(index),
        }
        with target:
            target.execute("CREATE TABLE index_facts (name TEXT PRIMARY KEY, value TEXT)")
            target.executemany("INSERT INTO index_facts VALUES (?, ?)", [(k, str(v)) for k, v in facts.items()])
            target.execute(f"CREATE TABLE documents_meta ({columns.replace('id,', 'id INTEGER PRIMARY KEY,', 1)})")
            rows = source.execute(f"SELECT {columns} FROM documents")
            marks = ", ".join("?" * len(META_COLUMNS))
            target.executemany(f"INSERT INTO documents_meta VALUES ({marks})", rows)
            target.execute("CREATE INDEX documents_meta_by_date ON documents_meta (filing_date)")
    unfinished.replace(sidecar)
    return sidecar


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the metadata of a local index beside it.")
    parser.add_argument("index", type=Path)
    parser.add_argument("--output", type=Path, help="where to write it; <index>.metadata by default")
    arguments = parser.parse_args(argv)
    try:
        print(build(arguments.index, arguments.output))
    except GymError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
