import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Workplace
from tests.mock_provider import MockProvider, Reply, Script, ToolCall
from tests.ray.cluster import RAY_ENVIRONMENT, LocalCluster, local_cluster

COUNTING = Script.of(
    Reply(tool_calls=(ToolCall("increment_counter", {"count": 3}),), latency=0.3), Reply(text="Done.", latency=0.3)
)
"""A model that adds 3, by a tool, and says so."""


@pytest.fixture(autouse=True)
def ray_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test starts talks to its cluster as that expects."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    for name, value in RAY_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # Under `uv run` Ray would pack the checkout and run actors in the copy.
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes that live as long as the tests."""
    with local_cluster(2) as made:
        yield made


@pytest.fixture
def two_nodes(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The same, for a test that loses a node: it is replaced afterwards."""
    yield cluster
    cluster.replace_lost()


@pytest.fixture
def provider() -> Iterator[MockProvider]:
    with MockProvider(COUNTING) as mock:
        yield mock


@pytest.fixture
def place(tmp_path: Path, provider: MockProvider) -> Workplace:
    workplace = Workplace(tmp_path)
    workplace.write_env(policy_base_url=provider.base_url, policy_api_key="k", policy_model_name="mock")
    return workplace
