"""`gym dataset collate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.errors import ConfigError
from nemo_gym.datasets.processing import collate_split
from nemo_gym.train_data_utils import TrainDataProcessor, TrainDataProcessorConfig
from tests.unit.datasets.fakes import Row, benchmark, config, dataset, read_jsonl, row, write_jsonl


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def collate(declared: DictConfig, mode: str = "train_preparation", **fields: Any) -> None:
    options = {"output_dirpath": "out", "mode": mode, **fields}
    TrainDataProcessor().run(OmegaConf.merge(declared, OmegaConf.create(options)))  # type: ignore[arg-type]


def test_rows_name_their_source_instead_of_an_agent(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row("a", agent_ref={"name": "x"}), row("b", answer="é")])
    with pytest.warns(DeprecationWarning, match="agent_ref was dropped from 1 rows"):
        collate(config(dataset(num_repeats=2)))
    text = (tmp_path / "out/train.jsonl").read_text()
    assert text == (tmp_path / "data/train_prepare.jsonl").read_text()
    expected = [{**row("a"), "task_source": "math"}, {**row("b", answer="é"), "task_source": "math"}]
    assert read_jsonl(tmp_path / "out/train.jsonl") == [expected[0], expected[0], expected[1], expected[1]]
    assert '"answer": "\\u00e9"' in text, "plain json.dumps"


def test_the_banners_and_the_final_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    collate(config(dataset()))
    shown = capsys.readouterr().out
    assert shown.rstrip("#\n").endswith("Finished!")
    assert "View your final data!\nout/train.jsonl" in shown


def test_data_sets_of_a_type_are_concatenated_in_config_order_and_tasks_counted_on(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/one.jsonl", [row("a"), row("b")])
    write_jsonl(tmp_path / "data/two.jsonl", [row("c", task_id="mine"), row("d")])
    declared = config(
        dataset(path="data/one.jsonl", num_repeats=2, taskset="ts"),
        dataset(path="data/two.jsonl", taskset="ts"),
        environment_server_routes={"ts": "env"},
        env={"environment_servers": {"duel": {"entrypoint": "app.py", "agent_server": agent_reference()}}},
    )
    collate(declared)
    rows = read_jsonl(tmp_path / "out/train.jsonl")
    assert [each["task_id"] for each in rows] == [
        {"taskset": "ts", "task_id": name} for name in ("0", "0", "1", "1", "mine", "3")
    ]
    assert rows[0]["task_input"] == row("a")


def agent_reference() -> Row:
    return {"type": "responses_api_agents", "name": "math_agent"}


def test_identity_keys_of_a_row_survive_its_becoming_a_task(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row(_ng_task_index=7, _ng_rollout_id="x", _ng_other=1)])
    env = {"environment_servers": {"duel": {"entrypoint": "app.py", "agent_server": agent_reference()}}}
    collate(config(dataset(taskset="ts"), environment_server_routes={"ts": "env"}, env=env))
    (task,) = read_jsonl(tmp_path / "out/train.jsonl")
    assert set(task) == {"task_id", "task_input", "_ng_task_index", "_ng_rollout_id"}


def test_a_task_set_needs_a_route(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    with pytest.raises(ConfigError, match="`ts` has no route"):
        collate(config(dataset(taskset="ts")))
    assert not (tmp_path / "out").exists()


def test_prepared_files_never_overwrite_each_other(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/x.jsonl", [row()])
    same = {"path": "data/x.jsonl"}
    declared = config(
        dataset(name="b", **same),
        dataset(name="b", **same),
        dataset(name="b", **same),
        dataset(name="b", **same),
    )
    collate(declared)
    assert sorted(path.name for path in (tmp_path / "data").glob("*_prepare*")) == [
        "x_prepare.jsonl",
        "x_prepare.math.b.2.jsonl",
        "x_prepare.math.b.jsonl",
        "x_prepare.math.jsonl",
    ]


def test_benchmark_rows_get_their_prompt(tmp_path: Path) -> None:
    (tmp_path / "prompt.yaml").write_text("user: 'Q: {question}'\n")
    write_jsonl(tmp_path / "data/benchmark.jsonl", [{"question": "1+1"}])
    collate(config(benchmark(prompt_config="prompt.yaml")))
    (task,) = read_jsonl(tmp_path / "out/benchmark.jsonl")
    assert task["responses_create_params"]["input"] == [{"role": "user", "content": "Q: 1+1"}]
    write_jsonl(tmp_path / "data/benchmark.jsonl", [{"question": "1+1"}, row()])
    with pytest.raises(ConfigError, match=r"benchmark\.jsonl, line 2: .* brings an input of its own"):
        collate(config(benchmark(prompt_config="prompt.yaml")))
    write_jsonl(tmp_path / "data/benchmark.jsonl", [{"other": "1+1"}])
    with pytest.raises(ConfigError, match="line 1: The prompt needs the field `question`"):
        collate(config(benchmark(prompt_config="prompt.yaml")))


def test_modes_choose_types(tmp_path: Path) -> None:
    for kind in ("train", "validation", "benchmark", "example"):
        write_jsonl(tmp_path / f"data/{kind}.jsonl", [row(kind)])
    declared = config(dataset("train"), dataset("validation"), dataset("example"), benchmark())
    collate(declared)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == [
        "benchmark.jsonl",
        "train.jsonl",
        "validation.jsonl",
    ]
    collate(declared, "example_validation", output_dirpath="ex")
    assert sorted(path.name for path in (tmp_path / "ex").iterdir()) == ["example.jsonl", "example_metrics.json"]
    with pytest.raises(ConfigError, match="No data sets of type example are declared"):
        collate(config(dataset("train")), "example_validation")


def test_missing_files_are_listed(tmp_path: Path) -> None:
    declared = config(dataset(), dataset("validation", prepare_script="data/prepare.py"))
    with pytest.raises(AssertionError, match=r"(?s)are missing:.*data/train\.jsonl.*data/validation\.jsonl"):
        collate(declared)
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    (tmp_path / "mine.yaml").write_text("datasets: [{name: validation, prepare_script: data/prepare.py}]")
    declared.config_paths = ["other.yaml", "mine.yaml"]
    with pytest.raises(ConfigError, match=r"Run `gym eval prepare --config mine\.yaml` first"):
        collate(declared, should_download=True)
    with pytest.raises(ConfigError, match="Downloading data sets is not available in this version yet"):
        collate(config(dataset("train", "data/none.jsonl")), should_download=True)


def test_data_sets_on_a_model_server_are_refused(tmp_path: Path) -> None:
    model = {"responses_api_models": {"m": {"entrypoint": "app.py", "datasets": [dataset()]}}}
    with pytest.raises(ValueError, match="The model server `policy_model` declares data sets"):
        collate(config(policy_model=model))


def test_a_malformed_line_is_left_out_of_the_metrics_and_ends_the_collation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    with (tmp_path / "data/train.jsonl").open("a") as file:
        file.write('\n{"a":\n')
    with pytest.raises(ConfigError, match=r"Malformed JSON in '.*train\.jsonl' at line 3"):
        collate(config(dataset()))
    assert "1 rows are left out of the metrics" in capsys.readouterr().err
    assert not (tmp_path / "out/train.jsonl").exists() and not list((tmp_path / "out").glob(".*"))


def test_rows_no_server_could_run_are_told_with_reasons_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B120"""
    bad: list[Row] = [{"messages": []}, {"responses_create_params": {"input": 3}}]
    write_jsonl(tmp_path / "data/train.jsonl", [row(), *bad, *bad, *bad])
    collate(config(dataset()))
    shown = capsys.readouterr().err
    assert "6 rows are left out of the metrics" in shown
    assert "train.jsonl, line 2: responses_create_params: Field required (rows of chat completions keep it" in shown
    assert "train.jsonl, line 3: responses_create_params.input" in shown and "found '3'" in shown
    assert "and 1 more" in shown
    assert len(read_jsonl(tmp_path / "out/train.jsonl")) == 7
    assert json.loads((tmp_path / "out/train_metrics.json").read_text())["Number of examples"] == 1


def test_a_source_is_never_overwritten(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data/example.jsonl", [row("kept")])
    with pytest.raises(ConfigError, match="choose another output folder"):
        collate(config(dataset("example")), "example_validation", output_dirpath="data")
    assert read_jsonl(path) == [row("kept")]


SCHEMA = """
from pydantic import BaseModel
class TaskData(BaseModel):
    answer: int
"""


@pytest.fixture
def schema(tmp_path: Path) -> None:
    server = tmp_path / "resources_servers" / "math_kind"
    server.mkdir(parents=True)
    (server / "task_data.py").write_text(SCHEMA)


@pytest.mark.usefixtures("schema")
def test_rows_are_held_against_the_schema_of_their_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row(answer=1), row(answer="x"), row(answer=2, extra=1)])
    collate(config(dataset()))
    shown = capsys.readouterr().err
    assert "1 rows don't fit" in shown and "2: answer" in shown and "extra (1 rows)" in shown
    assert len(read_jsonl(tmp_path / "out/train.jsonl")) == 3
    collate(config(dataset()), task_data_validation="off")
    assert "don't fit" not in capsys.readouterr().err
    with pytest.raises(ConfigError, match="1 rows don't fit"):
        collate(config(dataset()), task_data_validation="error")


@pytest.mark.usefixtures("schema")
def test_a_run_collates_its_split_only_and_writes_nothing_beside_the_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("train", "validation"):
        write_jsonl(tmp_path / f"data/{kind}.jsonl", [row(kind, answer="x")])
    declared = config(dataset(), dataset("validation"))
    assert collate_split(declared, "train", tmp_path / "rows") == tmp_path / "rows" / "train.jsonl"
    assert read_jsonl(tmp_path / "rows/train.jsonl") == [{**row("train", answer="x"), "task_source": "math"}]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["train.jsonl", "validation.jsonl"]
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["train.jsonl"]
    assert "don't fit" in capsys.readouterr().err
    declared.task_data_validation = "error"
    with pytest.raises(ConfigError, match="don't fit"):
        collate_split(declared, "train", tmp_path / "rows")


@pytest.mark.usefixtures("schema")
def test_example_rows_must_fit(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data/example.jsonl", [row(answer="x")])
    with pytest.raises(ConfigError, match="don't fit"):
        collate(config(dataset("example")), "example_validation")


@pytest.mark.usefixtures("schema")
def test_the_schema_of_an_agents_rows_is_its_resources_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "data/train.jsonl", [row(answer="x")])
    on_agent = {"entrypoint": "app.py", "datasets": [dataset()]}
    for name, said in (("math", True), ("gone", False)):
        reference = {"type": "resources_servers", "name": name}
        agent = {"responses_api_agents": {"simple_agent": {**on_agent, "resources_server": reference}}}
        collate(config(math_agent=agent))
        assert ("don't fit" in capsys.readouterr().err) is said


def test_a_broken_schema_is_only_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = tmp_path / "resources_servers" / "math_kind"
    server.mkdir(parents=True)
    (server / "task_data.py").write_text("import nothing_like_this")
    write_jsonl(tmp_path / "data/train.jsonl", [row()])
    collate(config(dataset()))
    assert "are not held against their schema" in capsys.readouterr().err


def test_what_auto_validation_means() -> None:
    def effective(**fields: Any) -> str:
        return TrainDataProcessorConfig.model_validate({"output_dirpath": "o", **fields}).effective_task_data_validation

    assert effective(mode="example_validation") == "error"
    assert effective(mode="train_preparation") == "warn"
    assert effective(mode="train_preparation", task_data_validation="off") == "off"
