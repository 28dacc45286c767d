"""Reading replies of other servers."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import orjson
from aiohttp import ClientResponse, ClientResponseError
from multidict import CIMultiDict


class RequestSummary(NamedTuple):
    """What a picklable error says about its request."""

    url: str
    method: str
    headers: CIMultiDict[str]
    real_url: str


async def raise_for_status(response: ClientResponse, content: bytes | None = None) -> None:
    """Raise a picklable ClientResponseError with `response_content` (bytes) unless the response is a success.

    `content` is the body, if it has been read already.
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
    summary = RequestSummary(str(info.url), info.method, CIMultiDict(info.headers), str(info.real_url))
    error.request_info = cast(Any, summary)
    error.history = ()
    error.headers = CIMultiDict(error.headers or {})
    error.args = (summary, ())
    error.response_content = content  # type: ignore[attr-defined]


async def get_response_json(response: ClientResponse) -> Any:
    """The decoded JSON body."""
    return orjson.loads(await response.read())
