"""Reading replies of other servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import orjson
from aiohttp import ClientResponse, ClientResponseError
from multidict import CIMultiDict

from nemo_gym.config.secrets import MASK, looks_like_secret_key, mask_userinfo


class RequestSummary(NamedTuple):
    """What a picklable error says about its request."""

    url: str
    method: str
    headers: CIMultiDict[str]
    real_url: str


async def raise_for_status(response: ClientResponse, content: bytes | None = None) -> None:
    """Raise a picklable ClientResponseError with `response_content` (bytes) unless the response is a success.

    `content` is the body, if it has been read already. Cookies, keys and user names are masked in the error.
    """
    if response.ok:
        return
    if content is None:
        content = await response.read()
    try:
        response.raise_for_status()
    except ClientResponseError as error:
        _make_picklable(error, content)
        raise


def _make_picklable(error: ClientResponseError, content: bytes) -> None:
    info = error.request_info
    summary = RequestSummary(_shown_url(info.url), info.method, _shown_headers(info.headers), _shown_url(info.real_url))
    error.request_info = cast(Any, summary)
    error.history = ()
    error.headers = _shown_headers(error.headers or {})
    error.args = (summary, ())
    error.response_content = content  # type: ignore[attr-defined]


def _shown_headers(headers: Any) -> CIMultiDict[str]:
    """The headers, those that hold secrets by their names masked."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return CIMultiDict((name, MASK if looks_like_secret_key(name) else value) for name, value in pairs)


def _shown_url(url: Any) -> str:
    """A URL with user names, and secrets among its parameters, masked."""
    text = mask_userinfo(str(url))
    base, mark, query = text.partition("?")
    if not mark:
        return text
    pairs = (pair.partition("=") for pair in query.split("&"))
    return f"{base}?{'&'.join(f'{key}={MASK}' if looks_like_secret_key(key) else key + eq + v for key, eq, v in pairs)}"


async def get_response_json(response: ClientResponse) -> Any:
    """The decoded JSON body."""
    return orjson.loads(await response.read())
