"""Pages of the web: fetched within the SEC's limits, and nothing of the machine's own network."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from nemo_gym.errors import GymError

PAUSES = (1.0, 2.0, 4.0)
"""Seconds before each further try; the last one repeats."""

_BUSY = frozenset({403, 429, 503})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_CHUNK_BYTES = 1 << 16
_NOT_TEXT = ("application/pdf", "application/zip", "application/octet-stream", "image/", "audio/", "video/", "font/")


class FetchError(GymError):
    """A page can't be had; the text is for the model that asked."""


class RateLimiter:
    """At most `requests_per_second` in any second, in order of arrival."""

    def __init__(self, requests_per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = max(1, math.floor(requests_per_second))
        self._window = self._most / requests_per_second
        self._clock = clock
        self._taken: deque[float] = deque(maxlen=self._most)
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        """Return when a request may be made."""
        async with self._turn:
            while (wait := self._seconds_to_wait()) > 0:
                await asyncio.sleep(wait)
            self._taken.append(self._clock())

    def _seconds_to_wait(self) -> float:
        return self._taken[0] + self._window - self._clock() if len(self._taken) == self._most else 0.0


@dataclass(frozen=True)
class Page:
    """A page as it came, decoded; `url` is where redirects led."""

    url: str
    text: str


@dataclass
class WebClient:
    """Fetches pages. `base_urls` says where requests to a site go instead, as in `{"https://www.sec.gov": mirror}`."""

    user_agent: str
    limiter: RateLimiter
    base_urls: dict[str, str] = field(default_factory=dict)
    timeout: float = 30.0
    connections_per_host: int = 10
    max_retries: int = 3
    max_bytes: int = 64 << 20
    allow_private: bool = False
    offline: bool = False
    _session: aiohttp.ClientSession | None = None

    async def get(self, url: str, *, retries: int | None = None) -> Page:
        """The page at an address. Busy servers and a network that fails are asked again, `max_retries` times unless
        `retries` says otherwise. Raises FetchError."""
        if self.offline:
            raise FetchError(f"{_shown(url)} can't be fetched: this server works offline, with the filings it holds.")
        problem = ""
        for number in range((self.max_retries if retries is None else retries) + 1):
            if number:
                await asyncio.sleep(PAUSES[min(number, len(PAUSES)) - 1])
            try:
                return await self._follow(url)
            except _TryAgain as error:
                problem = str(error)
            except TimeoutError:
                problem = f"no answer within {self.timeout:g} s"
            except (aiohttp.ClientError, OSError) as error:
                problem = f"{type(error).__name__}: {error}"
            except ValueError as error:
                raise FetchError(f"{_shown(url)} is no address that can be fetched: {error}") from error
        raise FetchError(f"{_shown(url)} can't be fetched: {problem}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _follow(self, url: str) -> Page:
        for _ in range(_MAX_REDIRECTS + 1):
            target = self._target(url)
            if self._is_sec(url):
                await self.limiter.acquire()
            async with (
                asyncio.timeout(self.timeout),
                self._own_session().get(target, allow_redirects=False) as answer,
            ):
                if answer.status not in _REDIRECTS or "Location" not in answer.headers:
                    return Page(url, await self._text_of(answer, url))
                url = urljoin(url, answer.headers["Location"])
        raise FetchError(f"{_shown(url)} can't be fetched: it is redirected more than {_MAX_REDIRECTS} times")

    def _target(self, url: str) -> str:
        """Where a request goes. FetchError for addresses that aren't for models."""
        for site, other in self.base_urls.items():
            if url == site or url.startswith((f"{site}/", f"{site}?")):
                return other + url[len(site) :]
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FetchError(f"{_shown(url)} is no address of a web page: it must begin with https:// or http://")
        if not self.allow_private and not _is_public(parts.hostname):
            raise FetchError(f"{_shown(url)} is not on the public internet")
        return url

    def _is_sec(self, url: str) -> bool:
        host = urlsplit(url).hostname or ""
        return host == "sec.gov" or host.endswith(".sec.gov")

    async def _text_of(self, answer: aiohttp.ClientResponse, url: str) -> str:
        if answer.status in _BUSY:
            raise _TryAgain(f"HTTP {answer.status}")
        if answer.status >= 400:
            raise FetchError(f"{_shown(url)} can't be fetched: HTTP {answer.status}")
        if answer.content_type.startswith(_NOT_TEXT):
            raise FetchError(f"{_shown(url)} is {answer.content_type}, which can't be read as a page")
        content = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
            content += chunk
            if len(content) > self.max_bytes:
                raise FetchError(f"{_shown(url)} is larger than {self.max_bytes} bytes")
        if b"\0" in content[:_CHUNK_BYTES] or content.startswith(b"%PDF"):
            raise FetchError(f"{_shown(url)} is not text, so it can't be read as a page")
        return _decoded(bytes(content), answer.charset)

    def _own_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            resolver = None if self.allow_private else _PublicResolver()
            connector = aiohttp.TCPConnector(limit_per_host=self.connections_per_host, resolver=resolver)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": self.user_agent, "Accept-Encoding": "gzip, deflate"},
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class _TryAgain(Exception):
    """The server is busy."""


class _PublicResolver(AbstractResolver):
    """Refuses names that lead into a private network."""

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if any(not _is_public(each["host"]) for each in found):
            raise FetchError(f"{_shown(host)} is not on the public internet")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _is_public(host: str) -> bool:
    """False for numeric addresses of private networks; names are looked at when they are resolved."""
    try:
        address: Any = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.rstrip(".").lower() != "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_global) and not address.is_multicast


def _decoded(content: bytes, charset: str | None) -> str:
    for encoding in (charset, "utf-8", "cp1252"):
        try:
            return content.decode(encoding or "utf-8")
        except (UnicodeDecodeError, LookupError, ValueError):
            continue
    return content.decode("utf-8", errors="replace")


def _shown(url: str, length: int = 200) -> str:
    return url if len(url) <= length else url[:length] + "…"
