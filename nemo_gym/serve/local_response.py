"""The reply of an app in this process, with the face of aiohttp's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from http.cookies import SimpleCookie
from types import TracebackType
from typing import Any

import orjson
from aiohttp import ClientResponseError, RequestInfo, StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from nemo_gym.serve.arrived_body import arrived
from nemo_gym.serve.cookies import set_cookies


class LocalResponse:
    """A complete HTTP reply: what callers use of `aiohttp.ClientResponse`."""

    history: tuple[Any, ...] = ()
    version = None
    closed = True

    def __init__(
        self, *, method: str, url: str, status: int, raw_headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        self.method = method
        self.status = status
        self._url = url
        self._raw_headers = raw_headers
        self._body = body

    def __repr__(self) -> str:
        return f"<LocalResponse {self.method} {self._url} [{self.status}]>"

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""

    @cached_property
    def url(self) -> URL:
        return URL(self._url)

    @property
    def real_url(self) -> URL:
        return self.url

    @property
    def host(self) -> str | None:
        return self.url.host

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return tuple(self._raw_headers)

    @cached_property
    def headers(self) -> CIMultiDictProxy[str]:
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._raw_headers]
        return CIMultiDictProxy(CIMultiDict(pairs))

    @cached_property
    def cookies(self) -> SimpleCookie:
        return set_cookies(self._raw_headers)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "application/octet-stream").split(";", 1)[0].strip().lower()

    @property
    def charset(self) -> str | None:
        return None

    @cached_property
    def content(self) -> StreamReader:
        return arrived(self._body)

    @cached_property
    def request_info(self) -> RequestInfo:
        return RequestInfo(self.url, self.method, CIMultiDictProxy(CIMultiDict()), self.url)

    async def read(self) -> bytes:
        return self._body

    async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        return self._body.decode(encoding or "utf-8", errors=errors)

    async def json(
        self,
        *,
        encoding: str | None = None,
        loads: Callable[[Any], Any] = orjson.loads,
        content_type: str | None = None,
    ) -> Any:
        return loads(self._body) if self._body.strip() else None

    def get_encoding(self) -> str:
        return "utf-8"

    def raise_for_status(self) -> None:
        if not self.ok:
            raise ClientResponseError(
                self.request_info, (), status=self.status, message=self.reason, headers=self.headers
            )

    def release(self) -> _Done:
        return _Done()

    def close(self) -> None:
        """Nothing is held."""

    async def wait_for_close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> LocalResponse:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Done:
    """`release()` may be awaited or not."""

    def __await__(self) -> Any:
        return iter(())
