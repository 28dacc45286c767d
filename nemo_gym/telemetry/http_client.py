"""A request we send, as one span over all of its tries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nemo_gym.telemetry._fallbacks import managed_span, safe_set_span_attributes
from nemo_gym.telemetry.propagation import with_traceparent

_USERINFO = re.compile(r"//[^/@]*@")


class RequestSpan:
    """The options to send the request with; `answered` notes the status of the reply."""

    def __init__(self, span: Any, options: dict[str, Any]) -> None:
        self._span = span
        self.options = options

    def answered(self, status: Any) -> None:
        """Note the HTTP status."""
        if isinstance(status, int):
            safe_set_span_attributes(self._span, {"http.response.status_code": status})


@contextmanager
def request_span(
    method: str, url: str, options: Mapping[str, Any], rollout_id: str | None = None
) -> Iterator[RequestSpan]:
    """A span around a request with aiohttp's options; its headers are copied and get the trace's id."""
    attributes = {"http.request.method": method, "url.full": _USERINFO.sub("//****@", url.split("?", 1)[0])}
    if rollout_id is not None:
        attributes["nemo.gym.rollout.id"] = rollout_id
    with managed_span("http_client", f"HTTP {method}", **attributes) as span:
        sent = dict(options)
        headers = with_traceparent(sent.get("headers"))
        if headers is not None:
            sent["headers"] = headers
        yield RequestSpan(span, sent)
