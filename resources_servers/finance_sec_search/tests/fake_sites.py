"""The SEC, Tavily, sec-api.io and some web site, on a real socket."""

from __future__ import annotations

import json
from collections import Counter
from types import TracebackType
from typing import Any

from aiohttp import web

ARCHIVES = "/Archives/edgar/data/320193/000032019323000106"
TICKERS = {
    "0": {"cik_str": 320193, "ticker": "AAPL", "title": "Apple Inc."},
    "1": {"cik_str": 1067983, "ticker": "BRK-B", "title": "Berkshire Hathaway Inc"},
}
RECENT = {
    "accessionNumber": ["0000320193-23-000106", "0000320193-23-000077"],
    "form": ["10-K", "10-Q"],
    "filingDate": ["2023-11-03", "2023-08-04"],
    "reportDate": ["2023-09-30", "2023-07-01"],
    "primaryDocument": ["aapl-20230930.htm", "aapl-20230701.htm"],
}
OLDER = {
    "accessionNumber": ["0000320193-10-000001"],
    "form": ["8-K"],
    "filingDate": ["2010-01-25"],
    "reportDate": [""],
    "primaryDocument": ["a8k.htm"],
}
SUBMISSIONS = {
    "cik": "320193",
    "filings": {"recent": RECENT, "files": [{"name": "CIK0000320193-submissions-001.json"}, {"name": "../evil.json"}]},
}
PAGES: dict[str, Any] = {
    "/files/company_tickers.json": TICKERS,
    "/submissions/CIK0000320193.json": SUBMISSIONS,
    "/submissions/CIK0000320193-submissions-001.json": OLDER,
    f"{ARCHIVES}/aapl-20230930.htm": "<html><style>x</style><p>Net sales were $383,285 million.</p></html>",
    "/page": "<p>A page.</p>",
}


class FakeSites:
    """Answers from `pages`, after the statuses in `first` for a path; "drop" breaks the connection."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = dict(PAGES)
        self.first: dict[str, list[int | str]] = {}
        self.asked: Counter[str] = Counter()
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.url = ""

    async def __aenter__(self) -> FakeSites:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] += 1
        self.requests.append(request)
        if request.method == "POST":
            self.bodies.append(await request.json())
        waiting = self.first.get(request.path)
        if waiting:
            what = waiting.pop(0)
            if isinstance(what, int):
                return web.Response(status=what)
            assert request.transport is not None
            request.transport.close()
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404)
        if isinstance(page, web.Response):
            return web.Response(status=page.status, headers=page.headers, body=page.body)
        if isinstance(page, bytes):
            return web.Response(body=page, content_type="text/html")
        text = page if isinstance(page, str) else json.dumps(page)
        return web.Response(text=text, content_type="text/html" if isinstance(page, str) else "application/json")
