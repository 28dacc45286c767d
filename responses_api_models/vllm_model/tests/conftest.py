from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mock_provider import MockProvider, Reply


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        yield provider
