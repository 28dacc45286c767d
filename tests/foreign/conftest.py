"""Components as authors of 0.7 wrote them, run unmodified: from a copy, since a component's folder is written to."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.harness import Background, Workplace
from tests.mock_provider import Fault, MockProvider, Reply, Rule, Script

collect_ignore = ["tree"]
CONFIGS = (
    "resources_servers/ticket_desk/configs/ticket_desk.yaml",
    "resources_servers/judged_essay/configs/judged_essay.yaml",
    "resources_servers/grandchild_check/configs/grandchild_check.yaml",
    "resources_servers/odd_habits/configs/odd_habits.yaml",
    "environment_servers/two_tries/configs/two_tries.yaml",
    "responses_api_models/rule_model/configs/rule_model.yaml",
)
JUDGE = Script(
    rules=(
        Rule("Topic: good", (Reply(text="I say [[GOOD]]."),)),
        Rule("Topic: refused", (Reply(fault=Fault(status=400, message="the judge declines")),)),
    ),
    default=(Reply(text="no verdict at all"),),
)


@dataclass(frozen=True)
class Started:
    """The foreign servers, running."""

    place: Workplace
    tree: Path
    background: Background

    def gym(self, *argv: str) -> str:
        ended = self.place.gym(*argv, NEMO_GYM_EXTRA_ROOTS=str(self.tree))
        assert ended.code == 0, ended.out + ended.err + self.background.text
        return ended.out

    def urls(self) -> dict[str, str]:
        rows = json.loads(self.gym("env", "status", "--json"))
        return {row["process_name"]: row["url"] for row in rows}


@pytest.fixture(scope="package")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(Path(__file__).parent / "tree", tmp_path_factory.mktemp("foreign") / "tree")


@pytest.fixture(scope="package")
def started(tmp_path_factory: pytest.TempPathFactory, tree: Path) -> Iterator[Started]:
    place = Workplace(tmp_path_factory.mktemp("place"))
    with MockProvider(JUDGE) as judge:
        place.write_env(
            policy_base_url="http://nobody/v1",
            policy_api_key="k",
            policy_model_name="rule",
            judge_base_url=judge.base_url,
        )
        chosen = [token for path in CONFIGS for token in ("--config", path)]
        with place.started("env", "start", *chosen, NEMO_GYM_EXTRA_ROOTS=str(tree)) as background:
            background.wait_for("servers ready!")
            yield Started(place, tree, background)
