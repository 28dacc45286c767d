from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Workplace
from tests.mock_provider import MockProvider, Reply


@pytest.fixture(scope="module")
def provider() -> Iterator[MockProvider]:
    """A model that always answers A."""
    with MockProvider(Reply(text="\\boxed{A}")) as mock:
        yield mock


@pytest.fixture
def place(tmp_path: Path, provider: MockProvider) -> Workplace:
    """A folder whose env.yaml points at the mock provider."""
    workplace = Workplace(tmp_path)
    workplace.write_env(policy_base_url=provider.base_url, policy_api_key="key-for-tests", policy_model_name="mock")
    return workplace
