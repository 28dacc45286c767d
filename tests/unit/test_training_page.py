"""docs/training.md does what it says: its rows can be run by the agents of the config it shows."""

import re
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.instances import server_instances
from nemo_gym.config.keys import RESPONSES_API_AGENTS
from nemo_gym.config.metadata import composed_file

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
[SNIPPET] = re.findall(r"^```python run\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_its_rows_name_an_agent_of_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told: dict[str, Any] = {}
    exec(SNIPPET, told)
    config = next(path for path in re.findall(r'"(\S+\.yaml)"', PAGE) if "resources_servers" in path)
    agents = {each.name for each in server_instances(composed_file(ROOT / config)) if is_agent(each.server_type)}
    assert len(told["rows"]) == 5 and {row["agent_ref"]["name"] for row in told["rows"]} <= agents
    assert all(row["responses_create_params"]["input"] for row in told["rows"])


def is_agent(server_type: str) -> bool:
    return server_type == RESPONSES_API_AGENTS
