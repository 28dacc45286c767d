"""Which rows a run uses, and what is settled before servers are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym.config.errors import ConfigError
from nemo_gym.rollout_collection import EvalRunConfig, prepare_collection
from nemo_gym.rollouts.sources import choose_rows
from tests.unit.rollouts.fakes import FakeClient, Helper, Row, agent, read_jsonl, right, served, task, write_jsonl


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dataset(kind: str, path: str | None = None, **fields: Any) -> Row:
    license_ = {} if kind == "example" else {"license": "MIT"}
    return {"name": kind, "type": kind, "jsonl_fpath": path or f"{kind}.jsonl", **license_, **fields}


def declaring(*datasets: Row, **entries: Any) -> DictConfig:
    return served(math_agent=agent(datasets=list(datasets)), **entries)


def files(config: DictConfig, **wanted: Any) -> list[str]:
    source = choose_rows(config, wanted.get("input"), wanted.get("split"), wanted.get("agent"))
    return [file.path.name for file in source.files]


def test_a_named_file_wins_and_is_looked_for_under_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write_jsonl(root / "mine.jsonl", [task("q")])
    write_jsonl(tmp_path / "example.jsonl", [task("q")])
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(root))
    source = choose_rows(declaring(dataset("example")), "mine.jsonl", None)
    assert [file.path for file in source.files] == [root / "mine.jsonl"]
    assert source.notice is None


def test_a_missing_file_names_the_flag_and_the_places() -> None:
    with pytest.raises(FileNotFoundError, match=r"--input nope\.jsonl does not exist\. Looked in "):
        choose_rows(served(), "nope.jsonl", None)
    with pytest.raises(ConfigError, match="is a folder"):
        choose_rows(served(), ".", None)
    with pytest.raises(ConfigError, match="exclude each other"):
        choose_rows(served(), "x.jsonl", "train")


def test_example_rows_are_used_with_a_notice_when_nothing_else_is_there(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "example.jsonl", [task("a"), task("b")])
    source = choose_rows(declaring(dataset("example"), dataset("train")), None, None)
    assert [file.path.name for file in source.files] == ["example.jsonl"]
    assert source.notice == "Neither --input nor --split given: using the shipped 2 example rows of example.jsonl."
    assert not source.needs_collation


def test_the_only_split_whose_file_exists_is_used_with_a_notice(tmp_path: Path) -> None:
    for kind in ("example", "train"):
        write_jsonl(tmp_path / f"{kind}.jsonl", [task("a"), task("b"), task("c")])
    source = choose_rows(declaring(dataset("example"), dataset("train"), dataset("validation")), None, None)
    assert (source.split, source.needs_collation) == ("train", True)
    assert source.notice == "Using 3 train rows of train.jsonl."


def test_with_several_splits_nothing_is_guessed(tmp_path: Path) -> None:
    for kind in ("example", "train", "validation"):
        write_jsonl(tmp_path / f"{kind}.jsonl", [task("a")])
    source = choose_rows(declaring(dataset("example"), dataset("train"), dataset("validation")), None, None)
    assert source.split == "example"
    assert "--split chooses train and validation rows instead" in (source.notice or "")


def test_nothing_to_run_lists_what_is_declared() -> None:
    with pytest.raises(ConfigError, match=r"No rows to run: .*\n  train \(train, declared by math_agent\): train"):
        choose_rows(declaring(dataset("train")), None, None)


def test_a_split_must_be_declared(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "example.jsonl", [task("a")])
    config = declaring(dataset("example"), dataset("train"))
    assert choose_rows(config, None, "train").split == "train"
    assert files(config, split="example") == ["example.jsonl"]
    with pytest.raises(ConfigError, match="No data set of the split `validation` is declared"):
        choose_rows(config, None, "validation")
    with pytest.raises(ConfigError, match="There is no split `test`"):
        choose_rows(config, None, "test")


def test_the_agent_that_is_asked_for_brings_its_own_rows(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        write_jsonl(tmp_path / f"{name}.jsonl", [task("a")])
    config = declaring(
        dataset("example", "mine.jsonl"), other_agent=agent(datasets=[dataset("example", "other.jsonl")])
    )
    assert files(config) == ["mine.jsonl", "other.jsonl"]
    assert files(config, agent="other_agent") == ["other.jsonl"]
    assert files(config, agent="nobody") == ["mine.jsonl", "other.jsonl"]


def prepared(config: DictConfig, **fields: Any) -> Any:
    return prepare_collection(EvalRunConfig.model_validate(fields), config)


async def test_a_run_that_names_nothing_ends_in_a_dated_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [task("a", agent_ref={"name": "somebody else"}), task("b")]
    write_jsonl(tmp_path / "example.jsonl", rows)
    served_config = declaring(dataset("example"), results_dir=str(tmp_path / "results"))
    run = prepared(served_config)
    assert run.num_samples_in_parallel == 256
    assert not run.retain_results_in_memory
    shown = capsys.readouterr().err
    assert "using the shipped 2 example rows" in shown
    assert f"Note: No --output given: writing to {run.output_jsonl_fpath}." in shown
    assert run.output_jsonl_fpath.startswith("results/math_agent-20")
    await Helper(FakeClient(served_config, right)).run_from_config(run)
    records = read_jsonl(Path(run.output_jsonl_fpath))
    assert [(record["task_source"], record["agent_ref"]) for record in records] == [
        ("math_agent", {"name": "math_agent"})
    ] * 2


def test_what_is_set_is_kept(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [task("a")])
    run = prepared(
        served(),
        input_jsonl_fpath="rows.jsonl",
        output_jsonl_fpath="o/x.jsonl",
        num_samples_in_parallel=3,
        retain_results_in_memory=True,
    )
    assert (run.num_samples_in_parallel, run.retain_results_in_memory) == (3, True)
    assert (tmp_path / "o").is_dir()


def test_bad_rows_and_places_are_told_before_servers_are_needed(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a":1}\n{"b":\n')
    with pytest.raises(ConfigError, match=r"rows\.jsonl' at line 2"):
        prepared(served(), input_jsonl_fpath="rows.jsonl", output_jsonl_fpath="x.jsonl")
    prepared(served(), input_jsonl_fpath="rows.jsonl", output_jsonl_fpath="x.jsonl", limit=1)
    with pytest.raises(Exception, match="is a folder"):
        prepared(served(), input_jsonl_fpath="rows.jsonl", output_jsonl_fpath=str(tmp_path))


def test_resume_needs_no_rows_but_an_output(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume needs --output"):
        prepared(served(), resume_from_cache=True)
    for name in ("x.jsonl", "x_materialized_inputs.jsonl"):
        (tmp_path / name).touch()
    assert prepared(served(), resume_from_cache=True, output_jsonl_fpath="x.jsonl").num_samples_in_parallel == 256


async def test_a_split_is_collated_beside_the_output(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [task("a"), task("b")])
    config = declaring(dataset("train", num_repeats=2))
    run = prepared(config, split="train", output_jsonl_fpath="o/x.jsonl")
    collated = tmp_path / "o" / "x" / "preprocessed_datasets" / "train.jsonl"
    assert [json.loads(line)["task_source"] for line in collated.read_text().splitlines()] == ["math_agent"] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "train.jsonl"]
    client = FakeClient(config, right)
    await Helper(client).run_from_config(run)
    assert len(client.runs) == 4
    collated.write_text(json.dumps(task("kept", agent_ref={"name": "math_agent"})) + "\n")
    again = prepared(config, split="train", output_jsonl_fpath="o/x.jsonl", reuse_existing_data_preparation=True)
    assert read_jsonl(again.row_files[0].path)[0]["responses_create_params"]["input"] == "kept"


async def test_limit_counts_over_all_files(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [task("a1"), task("a2")])
    write_jsonl(tmp_path / "b.jsonl", [task("b1"), task("b2")])
    config = declaring(dataset("example", "a.jsonl"), dataset("example", "b.jsonl"))
    client = FakeClient(config, right)
    await Helper(client).run_from_config(prepared(config, output_jsonl_fpath="x.jsonl", limit=3))
    assert [row["responses_create_params"]["input"] for row in client.runs] == ["a1", "a2", "b1"]


async def test_rows_of_a_named_file_go_to_the_agent_that_declares_it(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "mine.jsonl", [task("a")])
    config = declaring(
        dataset("example", "other.jsonl"),
        second_agent=agent(datasets=[dataset("example", "mine.jsonl")]),
        second_environment_server={
            "environment_servers": {
                "legacy_agent": {
                    "entrypoint": "app.py",
                    "agent_server": {"type": "responses_api_agents", "name": "second_agent"},
                }
            }
        },
    )
    run = prepared(config, input_jsonl_fpath="mine.jsonl", output_jsonl_fpath="x.jsonl")
    await Helper(FakeClient(config, right)).run_from_config(run)
    assert read_jsonl(tmp_path / "x.jsonl")[0]["agent_ref"] == {"name": "second_agent"}


def test_an_environment_in_one_file_is_spoken_of_as_that_file(tmp_path: Path) -> None:
    """C25: nobody knows the folder that was generated around it."""
    server = {"math": {"resources_servers": {"math": {"entrypoint": "app.py", "source_file": str(tmp_path / "me.py")}}}}
    write_jsonl(tmp_path / "example.jsonl", [task("a"), task("b")])
    notice = choose_rows(declaring(dataset("example"), **server), None, None).notice
    assert notice == "Neither --input nor --split given: using the 2 tasks of me.py."
    with pytest.raises(ConfigError, match=r"^me\.py has no tasks: give `Environment\(tasks=\[…\]\)` some, or name"):
        choose_rows(declaring(**server), None, None)
