"""The example data a resources server must ship."""

import json
from pathlib import Path

import pytest

from nemo_gym.cli.example_data import example_data_problems


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
