from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from resources_servers.finance_sec_search import company_tickers, fetching, grading, web_search
from resources_servers.finance_sec_search.tests.fake_sites import FakeSites


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fetching, company_tickers, web_search, grading):
        monkeypatch.setattr(module, "PAUSES", tuple(0.0 for _ in vars(module)["PAUSES"]))


@pytest.fixture
async def sites() -> AsyncIterator[FakeSites]:
    async with FakeSites() as fake:
        yield fake
