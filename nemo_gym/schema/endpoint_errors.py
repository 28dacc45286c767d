"""Errors of a backend. Loads aiohttp, so it is imported where they are raised or caught."""

from typing import Any, NamedTuple

from aiohttp import (
    ClientConnectorError,
    ClientOSError,
    ClientPayloadError,
    ClientResponseError,
    ServerDisconnectedError,
)
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

_SHOWN_CHARS = 200


class RefusedRequest(NamedTuple):
    """What aiohttp's errors say about a request, as plain values that can be pickled."""

    url: str
    method: str
    headers: CIMultiDict[str]
    real_url: str


class PermanentEndpointError(ClientResponseError):
    """A backend refused the key or the budget is spent; no request was sent. `response_content` is its last body."""

    response_content: bytes

    @classmethod
    def of(cls, status: int, content: bytes, url: str) -> "PermanentEndpointError":
        """The error for a backend that answered `status` with `content`."""
        shown = content[:_SHOWN_CHARS].decode("utf-8", "replace")
        request: Any = RefusedRequest(url, "POST", CIMultiDict(), url)
        error = cls(request, (), status=status, message=f"{url} refuses for good: {shown}", headers=CIMultiDict())
        error.response_content = content
        return error


def is_no_http(error: BaseException) -> bool:
    """True if what came back was nothing that can be read as HTTP; aiohttp tells of it as of a status."""
    return isinstance(error, ClientResponseError) and isinstance(error.__cause__, HttpProcessingError)


def is_cut_off(error: BaseException) -> bool:
    """True if the backend was reached but its answer broke off, or was none."""
    if is_no_http(error):
        return True
    cut_off = isinstance(error, ServerDisconnectedError | ClientPayloadError | ClientOSError)
    return cut_off and not isinstance(error, ClientConnectorError)
