"""What data sets measure, and the files that hold it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym.dataset_metrics import DatasetMetrics, load_task_metrics_hook
from nemo_gym.datasets.expectations import write_or_compare
from nemo_gym.datasets.statistics import LabelStatistics, NumberStatistics
from nemo_gym.train_data_utils import TrainDataProcessor
from tests.unit.datasets.fakes import Row, config, dataset, row, write_jsonl


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def collate(declared: DictConfig, **fields: Any) -> None:
    options = {"output_dirpath": "out", "mode": "train_preparation", **fields}
    TrainDataProcessor().run(OmegaConf.merge(declared, OmegaConf.create(options)))  # type: ignore[arg-type]


def measured(rows: list[Row]) -> Row:
    metrics = DatasetMetrics()
    for each in rows:
        metrics.observe_row(each)
    return metrics.to_json()


def test_number_statistics_are_those_of_the_sample() -> None:
    values = [3.0, 1.5, 9.25, -2.0, 7.0]
    first, second, whole = NumberStatistics(), NumberStatistics(), NumberStatistics()
    for index, value in enumerate(values):
        (first if index < 2 else second).observe(value)
        whole.observe(value)
    first.merge(second)
    assert first.to_json() == whole.to_json()
    assert whole.to_json() == {
        "Total # non-null values": 5,
        "Average": 3.75,
        "Min": -2.0,
        "Max": 9.25,
        "Standard deviation": round(statistics.stdev(values), 2),
    }


def test_small_figures_keep_three_places_and_nothing_is_zero() -> None:
    small = NumberStatistics()
    small.observe(0.12345)
    assert small.to_json()["Average"] == 0.123
    assert small.to_json()["Standard deviation"] == 0.0
    assert set(NumberStatistics().to_json().values()) == {0}


def test_a_rows_request_is_measured() -> None:
    first = row("two words")
    first["responses_create_params"] |= {"tools": [{}, {}], "temperature": 0.5}
    first["responses_create_params"]["input"].append({"role": "user", "content": "again"})
    second = {"responses_create_params": {"input": "text"}}
    figures = measured([first, second])
    assert figures["Number of examples"] == 2
    assert figures["Number of tools"]["Total # non-null values"] == 1
    assert figures["Number of tools"]["Average"] == 2.0
    assert (figures["Number of turns"]["Min"], figures["Number of turns"]["Max"]) == (1.0, 2.0)
    assert figures["Temperature"]["Average"] == 0.5
    words = figures["Json-dumped number of words (proxy for token count)"]
    assert words["Max"] == len(json.dumps(first["responses_create_params"]).split())
    assert "Number of tasks" not in figures


def test_other_fields_are_summed_up_by_kind() -> None:
    figures = measured(
        [
            row(level=1, ok=True, tags=["a", "b"], scores=[1, 3], meta={"x": 1}, agent_ref={"name": "a"}),
            row(level=3, ok=False, tags=["a"], uuid="u", task_source="s"),
        ]
    )
    assert figures["level"]["Average"] == 2.0
    assert figures["ok"]["Average"] == 0.5
    assert figures["scores"]["Max"] == 3.0
    assert figures["tags"] == {"unique_count": 2, "total_count": 3}
    assert figures["uuid"] == {"unique_count": 1, "total_count": 1}
    assert not {"meta", "agent_ref", "task_source", "responses_create_params"} & set(figures)


def test_merging_adds_instead_of_replacing(tmp_path: Path) -> None:
    """Two data sets of one type: texts and undeclared numbers count over both."""
    write_jsonl(tmp_path / "data/a.jsonl", [row(uuid=str(number), level=1) for number in range(5)])
    write_jsonl(tmp_path / "data/b.jsonl", [row(uuid=str(number), level=3) for number in range(3, 8)])
    collate(config(dataset(path="data/a.jsonl"), dataset(path="data/b.jsonl", name="second")))
    figures = json.loads((tmp_path / "out/train_metrics.json").read_text())
    assert figures["uuid"] == {"unique_count": 8, "total_count": 10}
    assert figures["level"]["Average"] == 2.0
    assert (figures["Number of examples"], figures["name"]) == (10, "train")


def test_the_metrics_file_describes_its_data_set(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    declared = dataset(num_repeats=2, source={"type": "huggingface", "repo_id": "a/b"}, prepare_script="p.py")
    collate(config(declared))
    text = (tmp_path / "data/train_metrics.json").read_text()
    figures = json.loads(text)
    assert list(figures)[:8] == [
        "name",
        "type",
        "jsonl_fpath",
        "num_repeats",
        "source",
        "gitlab_identifier",
        "huggingface_identifier",
        "license",
    ]
    assert figures["Number of examples"] == 2
    assert figures["huggingface_identifier"] == {"repo_id": "a/b", "artifact_fpath": None}
    assert text.startswith('{\n    "name"')


@pytest.mark.parametrize(
    ("expected", "measured", "kept"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1.0}, {"a": 1.004}, True),
        ({"a": 1.0}, {"a": 1.006}, False),
        ({"a": 0.5}, {"a": 0.5004}, True),
        ({"a": 0.5}, {"a": 0.5006}, False),
        ({"a": 5}, {"a": 6}, False),
        ({"a": [1, 2, 2]}, {"a": [2, 1, 2]}, True),
        ({"a": [1, 2]}, {"a": [1, 2, 2]}, False),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": True}, {"a": 1}, False),
    ],
)
def test_what_keeps_a_promise(tmp_path: Path, expected: Row, measured: Row, kept: bool) -> None:
    path = tmp_path / "x_metrics.json"
    path.write_text(json.dumps(expected))
    conflict = write_or_compare(path, measured, overwrite=False)
    assert (conflict is None) is kept
    assert json.loads(path.read_text()) == expected
    assert (tmp_path / "x_metrics_conflict.json").exists() is not kept


def test_a_broken_promise_is_told_and_ends_the_run_after_all_were_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row(level=1)])
    write_jsonl(tmp_path / "data/validation.jsonl", [row(level=1)])
    declared = config(dataset(), dataset("validation"))
    (tmp_path / "data/train_metrics.json").write_text('{"Number of examples": 7, "gone": 1}')
    with pytest.raises(ValueError, match=r"(?s)no longer measure.*train_metrics\.json .*pass \+overwrite"):
        collate(declared)
    shown = capsys.readouterr().err
    assert "Number of examples: expected 7, found 1" in shown and "gone: expected 1, not measured any more" in shown
    assert (tmp_path / "data/validation_metrics.json").exists()
    assert not (tmp_path / "out").exists()
    collate(declared, overwrite_metrics_conflicts=True)
    assert json.loads((tmp_path / "data/train_metrics.json").read_text())["Number of examples"] == 1


def test_a_type_whose_own_metrics_conflict_is_left_out(tmp_path: Path) -> None:
    for kind in ("train", "validation"):
        write_jsonl(tmp_path / f"data/{kind}.jsonl", [row()])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/train_metrics.json").write_text('{"Number of examples": 7}')
    with pytest.raises(ValueError, match="train_metrics"):
        collate(config(dataset(), dataset("validation")))
    assert not (tmp_path / "out/train.jsonl").exists() and (tmp_path / "out/validation.jsonl").exists()


def test_a_kept_metrics_file_is_left_alone(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    (tmp_path / "data/train_metrics.json").write_text('{"Number of examples":1}')
    collate(config(dataset()))
    assert (tmp_path / "data/train_metrics.json").read_text() == '{"Number of examples":1}'


TASK = {"task_id": {"taskset": "ts", "task_id": "a"}, "task_input": {"question": "x y"}}
HOOK = """
def compute_task_metrics(task_input):
    return {"letters": len(task_input["question"]), "kind": ["short", "text"], "nothing": None}
"""


def write_hook(folder: Path, text: str) -> Path:
    server = folder / "resources_servers" / "math_kind"
    server.mkdir(parents=True, exist_ok=True)
    (server / "dataset_metrics.py").write_text(text)
    return server


def test_tasks_are_measured_by_their_servers_own_hook(tmp_path: Path) -> None:
    write_hook(tmp_path, HOOK)
    broken = {"task_id": {"taskset": "ts"}, "task_input": {}}
    write_jsonl(tmp_path / "data/train.jsonl", [TASK, TASK, broken])
    collate(config(dataset()))
    figures = json.loads((tmp_path / "data/train_metrics.json").read_text())
    assert (figures["Number of examples"], figures["Number of tasks"]) == (2, 2)
    assert figures["letters"]["Average"] == 3.0
    assert figures["kind"] == {"counts": {"short": 2, "text": 2}, "unique_count": 2, "total_count": 4}
    assert figures["Tasksets"]["counts"] == {"ts": 2}
    assert figures["Json-dumped task-input words (proxy for token count)"]["Average"] == 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no function compute_task_metrics"),
        ("import nothing_like_this", "can't be imported"),
        ("def compute_task_metrics(task_input): return [1]", "must return a mapping"),
        ("def compute_task_metrics(task_input): return {'': 1}", "names are non-empty"),
        ("def compute_task_metrics(task_input): return {'Temperature': 1}", "which Gym measures itself"),
        ("def compute_task_metrics(task_input): return {'a': [1, 'x']}", "mixes numbers and texts under 'a'"),
    ],
)
def test_a_bad_hook_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    server = write_hook(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        DatasetMetrics().observe_task("ts", {"q": 1}, load_task_metrics_hook(server)({"q": 1}))


def test_labels_beyond_a_hundred_are_counted_together() -> None:
    labels = LabelStatistics()
    for number in range(120):
        labels.observe(f"label {number:03}")
    figures = labels.to_json()
    assert (len(figures["counts"]), figures["counts"]["Other"], figures["total_count"]) == (101, 20, 120)
    named = LabelStatistics()
    named.observe("Other")
    named.merge(labels)
    assert named.to_json()["counts"]["Other (overflow)"] == 21
