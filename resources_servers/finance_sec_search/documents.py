"""The text of a page: of the SEC's archives from the cache or a dump where they have it, else fetched."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nemo_gym.verifiers.worker_pool import WorkerError, WorkerPool
from resources_servers.finance_sec_search.cache_files import FILINGS_FOLDER, write_quietly
from resources_servers.finance_sec_search.fetching import FetchError, WebClient
from resources_servers.sec_local_index.html_text import html_to_text
from resources_servers.sec_local_index.local_edgar_search import LocalEdgarSearch
from resources_servers.sec_local_index.sec_urls import SecArchivesUrl, parse_sec_archives_url

SECONDS = 60.0
"""How long making text of one page may take."""

_SHORT_PAGE = 200_000
_POOL = WorkerPool(max_workers=2)
LOG = logging.getLogger("finance_sec_search")


class DocumentTexts:
    """`cache` and `dump` are folders; `index` knows where the dump keeps its documents. Each may be missing."""

    def __init__(
        self,
        web: WebClient,
        *,
        cache: Path | None = None,
        dump: Path | None = None,
        index: LocalEdgarSearch | None = None,
    ) -> None:
        self._web = web
        self._folder = None if cache is None else cache / FILINGS_FOLDER
        self._dump = dump
        self._index = index

    async def of(self, url: str) -> str:
        """The text of a page. Raises FetchError."""
        url = url.strip()
        document = parse_sec_archives_url(url)
        if document is None:
            return await _text_of((await self._web.get(url)).text)
        cached = await asyncio.to_thread(self._from_cache, document)
        if cached is not None:
            return cached
        page = await asyncio.to_thread(self._from_dump, document)
        if page is None:
            page = (await self._web.get(document.url)).text
        text = await _text_of(page)
        if self._folder is not None:
            await asyncio.to_thread(write_quietly, self._file(document), text.encode(errors="replace"))
        return text

    def _file(self, document: SecArchivesUrl) -> Path:
        assert self._folder is not None
        return self._folder / document.cik / document.accession / f"{document.document}.txt"

    def _from_cache(self, document: SecArchivesUrl) -> str | None:
        if self._folder is None:
            return None
        for cik in (document.cik, document.padded_cik):
            for accession in (document.accession, document.dashed_accession):
                file = self._folder / cik / accession / f"{document.document}.txt"
                if (text := _read(file)) is not None:
                    return text
        return None

    def _from_dump(self, document: SecArchivesUrl) -> str | None:
        if self._dump is None:
            return None
        for relative in self._places(document):
            file = within(self._dump, relative)
            if file is not None and (page := _read(file)) is not None:
                return page
        return None

    def _places(self, document: SecArchivesUrl) -> Iterator[str]:
        """Where the dump may have exactly this document."""
        known = None if self._index is None else self._index.source_path(document)
        if known is not None:
            yield known
        below = f"{document.cik}/{document.accession}/{document.document}"
        yield from (below, f"edgar/data/{below}", f"Archives/edgar/data/{below}")


def within(folder: Path, relative: str) -> Path | None:
    """A file below a folder; None for paths that lead out of it: absolute ones, with `..`, or through links."""
    path = PurePosixPath(relative.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in relative:
        LOG.warning("The path %r leads out of the dump and is not read.", relative[:200])
        return None
    file = (folder / path).resolve()
    return file if file.is_relative_to(folder.resolve()) else None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        LOG.warning("%s can't be read: %s", file, error)
        return None


async def _text_of(page: str) -> str:
    """The page's text. Long pages take a processor for long, so they are read in a process of their own."""
    if len(page) <= _SHORT_PAGE:
        return html_to_text(page)
    try:
        return await _POOL.run(html_to_text, page, timeout=SECONDS)
    except WorkerError as error:
        raise FetchError(f"The page can't be made text: {error}") from error
