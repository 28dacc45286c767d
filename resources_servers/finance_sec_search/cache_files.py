"""Files of the cache: read without trust, written whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

LOG = logging.getLogger("finance_sec_search")

TICKERS = "tickers.json"
METADATA_FOLDER = "filings_metadata"
FILINGS_FOLDER = "filings"


def read_json(path: Path) -> Any:
    """The content of a file; None when there is none that can be read, which is logged."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        LOG.warning("%s can't be read and is left aside: %s", path, error)
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def write_quietly(path: Path, content: bytes) -> None:
    """`write_whole` for what can be had again: a cache that can't be written is logged, nothing more."""
    try:
        write_whole(path, content)
    except OSError as error:
        LOG.warning("%s can't be written, so it will be fetched again: %s", path, error)
