"""An environment in one file, run by its path in real processes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, Workplace
from tests.mock_provider import MockProvider, Reply, Rule, Script, ToolCall

PAGE = (ROOT / "docs" / "write-an-environment.md").read_text(encoding="utf-8")
[(NAME, SOURCE)] = re.findall(r"^```python file=(\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
BREAD = (ToolCall("put", {"item": "bread", "count": 2}), ToolCall("put", {"item": "cheese", "count": 1}))


@pytest.fixture(scope="module")
def shopper() -> Iterator[MockProvider]:
    """Buys bread and cheese when asked to, and only talks of apples."""
    rules = (
        Rule("bread", (Reply(tool_calls=BREAD), Reply(text="Bought."))),
        Rule("apples", (Reply(text="I bought three apples."),)),
    )
    with MockProvider(Script(rules=rules)) as mock:
        yield mock


@pytest.fixture
def place(tmp_path: Path, shopper: MockProvider) -> Workplace:
    workplace = Workplace(tmp_path)
    workplace.write_env(policy_base_url=shopper.base_url, policy_api_key="key-for-tests", policy_model_name="mock")
    (tmp_path / NAME).write_text(SOURCE, encoding="utf-8")
    return workplace


def test_it_runs_by_its_path_and_resumes_only_as_the_same_file(place: Workplace) -> None:
    run = ("eval", "run", NAME, "--model-type", "openai_model", "--output", "out.jsonl", "--num-repeats", "2")
    ended = place.gym(*run)
    assert ended.code == 0, ended.err
    records = place.read_rows("out.jsonl")
    rewards = {(record["wanted"].get("bread", 0), record["reward"], record["reward_reason"]) for record in records}
    assert rewards == {(2, 1.0, "the basket held {'bread': 2, 'cheese': 1}"), (0, 0.0, "the basket held {}")}
    assert len(records) == 4

    again = place.gym(*run, "--resume")
    assert again.code == 0, again.err
    assert place.lines("out.jsonl") == 4

    (place.folder / NAME).write_text(SOURCE.replace("The basket holds", "It holds"), encoding="utf-8")
    refused = place.gym(*run, "--resume")
    assert refused.code == 1
    assert "code of resources_servers/shop: shop.py has changed\n" in refused.error


def test_it_is_served_by_its_path_and_collected_without_serving(place: Workplace) -> None:
    with place.started("env", "start", NAME, "--model-type", "openai_model") as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        ended = place.gym("eval", "run", "--no-serve", NAME, "--agent", "shop_simple_agent", "--output", "out.jsonl")
        assert ended.code == 0, ended.err
    assert sorted(record["reward"] for record in place.read_rows("out.jsonl")) == [0.0, 1.0]
