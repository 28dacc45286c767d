"""The example data a resources server must ship."""

import json
import re
import shlex
from pathlib import Path

import pytest

from nemo_gym.cli.example_data import example_data_problems
from tests.unit.cli.conftest import Gym


@pytest.fixture
def server(tmp_path: Path) -> Path:
    data = tmp_path / "quiz/data"
    data.mkdir(parents=True)
    for name in ("example.jsonl", "example_rollouts.jsonl"):
        (data / name).write_text("{}\n" * 5)
    (data / "example_metrics.json").write_text(json.dumps({"Number of examples": 5}))
    return tmp_path / "quiz"


def test_complete_data_has_no_problem(server: Path) -> None:
    assert example_data_problems(server) == []


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("example.jsonl", "{}\n" * 4, "exactly 5"),
        ("example_metrics.json", '{"Number of examples": 4}', "gym dataset collate --resources-server quiz"),
        ("example_metrics.json", "{", "gym dataset collate"),
        ("example_metrics.json", "[]", "gym dataset collate"),
        ("example_rollouts.jsonl", "", "gym eval run --resources-server quiz"),
        ("train_metrics_conflict.json", "{}", "delete it"),
    ],
)
def test_each_fault_is_named_with_what_mends_it(server: Path, name: str, content: str, advice: str) -> None:
    (server / "data" / name).write_text(content)
    (problem,) = example_data_problems(server)
    assert name in problem and advice in problem


def test_missing_files_are_faults(server: Path) -> None:
    for path in (server / "data").iterdir():
        path.unlink()
    assert len(example_data_problems(server)) == 3


CONFIG = """
quiz:
  resources_servers:
    quiz:
      entrypoint: app.py
      domain: other
      datasets:
      - {name: example, type: example, jsonl_fpath: resources_servers/quiz/data/example.jsonl}
"""


@pytest.mark.parametrize("config_name", ["quiz", "flavor"])
@pytest.mark.parametrize("metrics", [None, '{"Number of examples": 4}'])
def test_the_advised_collation_writes_the_metrics(
    gym: Gym, tmp_path: Path, config_name: str, metrics: str | None
) -> None:
    server = tmp_path / "resources_servers/quiz"
    data = server / "data"
    data.mkdir(parents=True)
    (server / "configs").mkdir()
    (server / "configs" / f"{config_name}.yaml").write_text(CONFIG)
    row = json.dumps({"responses_create_params": {"input": "1+1"}})
    (data / "example.jsonl").write_text(f"{row}\n" * 5)
    (data / "example_rollouts.jsonl").write_text("{}\n" * 5)
    if metrics is not None:
        (data / "example_metrics.json").write_text(metrics)
    (problem,) = example_data_problems(server)
    advised = re.search("`gym (.*?)`", problem)
    assert advised is not None
    ended = gym(*shlex.split(advised[1]))
    assert ended.code == 0, ended.err
    assert example_data_problems(server) == []
    assert (data / "example.jsonl").read_text() == f"{row}\n" * 5


def test_metrics_that_cannot_be_read_must_be_deleted_first(server: Path) -> None:
    (server / "data/example_metrics.json").write_text("{")
    (problem,) = example_data_problems(server)
    assert "delete it; then `gym dataset collate" in problem and "overwrite" not in problem
