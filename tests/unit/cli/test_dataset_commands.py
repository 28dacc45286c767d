"""`gym dataset`: rows filled into prompts and collected from configs."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Gym

RENDER = ("dataset", "render", "--prompt-config", "prompt.yaml", "--output", "new/out.jsonl", "--input", "rows.jsonl")


@pytest.fixture
def prompt(gym: Gym, tmp_path: Path) -> Path:
    (tmp_path / "prompt.yaml").write_text('system: Be brief.\nuser: "Q: {question}"\n')
    return tmp_path


def test_rows_are_filled_into_the_prompt(gym: Gym, prompt: Path) -> None:
    (prompt / "rows.jsonl").write_text('{"question": "1+1"}\n')
    ended = gym(*RENDER)
    assert ended.code == 0, ended.err
    assert "1 rows" in ended.out
    row = json.loads((prompt / "new/out.jsonl").read_text())
    assert [message["content"] for message in row["responses_create_params"]["input"]] == ["Be brief.", "Q: 1+1"]
    assert row["prompt_config_used"].endswith("prompt.yaml")


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ('{"responses_create_params": {"input": "x"}, "question": "a"}\n', ["0", "input"]),
        ('{"answer": "a"}\n', ["question"]),
        ("{\n", ["rows.jsonl"]),
    ],
)
def test_rows_that_do_not_fit_are_told_in_one_sentence(gym: Gym, prompt: Path, rows: str, parts: list[str]) -> None:
    (prompt / "rows.jsonl").write_text(rows)
    ended = gym(*RENDER)
    assert ended.code == 1 and ended.err.startswith("Error: ")
    assert all(part in ended.err for part in parts)
    assert not (prompt / "new/out.jsonl").exists()


def test_what_is_missing_is_asked_for_by_its_flags(gym: Gym) -> None:
    ended = gym("dataset", "collate")
    assert ended.code == 2 and "--output-dir" in ended.err and "--mode" in ended.err


def test_declared_rows_are_collated_without_a_model(gym: Gym, tmp_path: Path) -> None:
    (tmp_path / "quiz.yaml").write_text(
        "quiz:\n  resources_servers:\n    quiz:\n      entrypoint: app.py\n      domain: other\n      datasets:\n"
        "      - {name: example, type: example, jsonl_fpath: rows.jsonl}\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "1+1"}}\n' * 5)
    ended = gym(
        "dataset", "collate", "--config", "quiz.yaml", "--mode", "example_validation", "--output-dir", "collated"
    )
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in (tmp_path / "collated/example.jsonl").read_text().splitlines()]
    assert [row["task_source"] for row in rows] == ["quiz"] * 5
