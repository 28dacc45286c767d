"""Result files of several runs, scored together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollout_collection import RolloutAggregationConfig, RolloutAggregationHelper
from nemo_gym.rollouts.errors import IncompleteRunError, OutputError, RowError, ShardsRefusedError
from nemo_gym.rollouts.outputs import ResultSet
from tests.unit.rollouts.fakes import (
    FakeClient,
    Row,
    collect,
    collection_config,
    read_jsonl,
    right,
    served,
    task,
    write_jsonl,
)


def model(name: str) -> Any:
    return served(policy_model={"responses_api_models": {"openai_model": {"entrypoint": "app.py", "model": name}}})


def rows(first: int, count: int) -> list[Row]:
    return [task(f"q{number}", number=number, _ng_task_index=number) for number in range(first, first + count)]


async def shard(tmp_path: Path, name: str, first: int, count: int, config: Any = None) -> None:
    def answer(row: Row) -> Row:
        return {"_ng_failure_class": "judge_failed"} if row["number"] == 1 else right(row)

    folder = tmp_path / name
    folder.mkdir()
    wanted = collection_config(folder, rows(first, count), agent_name="math_agent")
    await collect(wanted, answer, model("m-1") if config is None else config)


async def aggregate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> FakeClient:
    client = FakeClient(model("m-1"), right)
    monkeypatch.setattr("nemo_gym.rollout_collection.setup_server_client_utils", lambda head=None: client)
    values = {"input_glob": f"{tmp_path}/*/out.jsonl", "output_jsonl_fpath": str(tmp_path / "all.jsonl"), **fields}
    await RolloutAggregationHelper().run_from_config(RolloutAggregationConfig.model_validate(values))
    return client


async def test_the_books_of_the_whole_are_those_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B111: coverage of the whole, whatever each shard lacks."""
    await shard(tmp_path, "a", 0, 3)
    await shard(tmp_path, "b", 3, 2)
    plan = tmp_path / "b" / "out_materialized_inputs.jsonl"
    write_jsonl(plan, [*read_jsonl(plan), {"_ng_task_index": 9, "_ng_rollout_index": 0}])
    capsys.readouterr()
    await aggregate(tmp_path, monkeypatch)
    shown = capsys.readouterr().out
    line = "6 asked: 4 measured, 1 failed (verifier 1), 0 unknown, 1 not started"
    assert shown.splitlines()[-1] == line and shown.count(" asked: ") == 1
    books = json.loads((tmp_path / "all_coverage.json").read_text())
    assert (books["asked"], books["unknown"], books["not_started"]) == (6, 0, 1)
    assert (books["files"], books["duplicates"]) == (2, 0)
    with pytest.raises(IncompleteRunError, match="6 asked: 4 measured"):
        await aggregate(tmp_path, monkeypatch, require_complete=True)


async def test_shards_of_different_runs_are_refused_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await shard(tmp_path, "a", 0, 1)
    await shard(tmp_path, "b", 3, 1, model("m-2"))
    with pytest.raises(ShardsRefusedError) as raised:
        await aggregate(tmp_path, monkeypatch)
    text = str(raised.value)
    assert "policy_model.responses_api_models.openai_model.model: m-1 → m-2" in text
    assert str(tmp_path / "b" / "out.jsonl") in text and "--merge-anyway" in text
    assert not (tmp_path / "all.jsonl").exists()
    await aggregate(tmp_path, monkeypatch, merge_anyway=True)
    assert "m-1 → m-2" in capsys.readouterr().err
    (told,) = json.loads((tmp_path / "all_coverage.json").read_text())["merged_anyway"]
    assert "m-1 → m-2" in told


async def test_a_rollout_in_two_files_is_refused_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B59"""
    await shard(tmp_path, "a", 2, 2)
    await shard(tmp_path, "b", 3, 2)
    with pytest.raises(ShardsRefusedError) as raised:
        await aggregate(tmp_path, monkeypatch)
    first, second = (str(tmp_path / name / "out.jsonl") for name in ("a", "b"))
    assert f"1 record repeats a rollout: task 3, repeat 0 is in {first} and {second}." in str(raised.value)
    client = await aggregate(tmp_path, monkeypatch, merge_anyway=True)
    assert [record["_ng_task_index"] for record in client.aggregated[0][1]] == [2, 3, 3, 4]
    assert json.loads((tmp_path / "all_coverage.json").read_text())["duplicates"] == 1


async def test_a_rollout_twice_in_one_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B59"""
    await shard(tmp_path, "a", 2, 2)
    path = tmp_path / "a" / "out.jsonl"
    write_jsonl(path, [*read_jsonl(path), read_jsonl(path)[0]])
    await aggregate(tmp_path, monkeypatch)
    shown = capsys.readouterr()
    assert f"1 record repeats a rollout: task 2, repeat 0 is in {path} twice. All of them are scored." in shown.err
    assert shown.out.splitlines()[-1] == "2 asked: 2 measured, 0 failed, 0 unknown"


async def test_the_same_rollout_of_two_servers_is_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}
    for name, server in (("a", "math_environment_server"), ("b", "math_agent")):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "out.jsonl", [{**stamps, "_ng_environment_server": server}])
    client = await aggregate(tmp_path, monkeypatch)
    assert len(client.aggregated) == 2


async def test_shapes_of_earlier_versions_are_read_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B58: no indices, no attempts, no stamps, no journal, no plan; never an end of it all."""
    await shard(tmp_path, "a", 2, 1)
    (tmp_path / "b").mkdir()
    agent = {"agent_ref": {"name": "math_agent"}}
    old: list[Row] = [{"reward": 0.0, **agent}, {"reward": 0.0, "_ng_task_index": 7, "_ng_rollout_index": 0}]
    write_jsonl(tmp_path / "b" / "out.jsonl", old)
    write_jsonl(tmp_path / "b" / "out_failures.jsonl", [{"error": "x", "_ng_task_index": 8, "_ng_rollout_index": 0}])
    client = await aggregate(tmp_path, monkeypatch)
    assert len(client.aggregated[0][1]) == 2
    shown = capsys.readouterr()
    assert f"1 of the files don't say how they were made, as {tmp_path / 'b' / 'out.jsonl'}" in shown.err
    assert "1 records name no task or no repeat" in shown.err
    assert "1 records name no server whose metrics they could be part of" in shown.err
    assert shown.out.splitlines()[-1] == "4 asked: 3 measured, 1 failed (environment 1), 0 unknown"


async def test_a_torn_last_line_is_left_out_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B53: a shard whose run was killed, or still goes on."""
    await shard(tmp_path, "a", 2, 2)
    path = tmp_path / "a" / "out.jsonl"
    with path.open("ab") as file:
        file.write(b'{"reward": 1')
    before = path.read_bytes()
    await aggregate(tmp_path, monkeypatch)
    shown = capsys.readouterr()
    assert f"The last line of {path} is torn and left out" in shown.err
    assert shown.out.splitlines()[-1] == "2 asked: 2 measured, 0 failed, 0 unknown"
    assert path.read_bytes() == before


async def test_results_of_a_run_are_never_replaced_by_a_merger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await shard(tmp_path, "a", 2, 1)
    await shard(tmp_path, "b", 3, 1)
    with pytest.raises(OutputError, match="holds the results of a run"):
        await aggregate(tmp_path, monkeypatch, output_jsonl_fpath=str(tmp_path / "b" / "out.jsonl"))
    assert len(read_jsonl(tmp_path / "b" / "out.jsonl")) == 1


async def test_what_another_run_writes_is_not_merged_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await shard(tmp_path, "a", 2, 1)
    with (
        ResultSet(tmp_path / "all.jsonl").locked(),
        pytest.raises(OutputError, match=rf"Another run \(process \d+\) is writing {tmp_path / 'all.jsonl'}"),
    ):
        await aggregate(tmp_path, monkeypatch)


async def test_retries_of_all_parts_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B60"""
    await shard(tmp_path, "a", 1, 2)
    await collect(collection_config(tmp_path / "a", [], resume_from_cache=True), right, model("m-1"))
    await shard(tmp_path, "b", 3, 1)
    capsys.readouterr()
    await aggregate(tmp_path, monkeypatch)
    assert "Measured only after retries: 1 (mean reward 1, of the others 1)\n" in capsys.readouterr().out


# --- parts that number their tasks alike ---


async def part(tmp_path: Path, name: str, questions: str, **fields: Any) -> None:
    """A run of one row for each letter, numbered from 0."""
    folder = tmp_path / name
    folder.mkdir()
    wanted = collection_config(folder, [task(question) for question in questions], agent_name="math_agent", **fields)
    await collect(wanted, right, model("m-1"))


def merged(tmp_path: Path) -> list[tuple[int, int, str, Any]]:
    """Of each merged record its task, repeat and prompt, and where it comes from."""
    return [
        (
            record["_ng_task_index"],
            record["_ng_rollout_index"],
            record["responses_create_params"]["input"],
            record.get("_ng_shard", {}).get("task_index"),
        )
        for record in read_jsonl(tmp_path / "all.jsonl")
    ]


async def test_parts_cut_from_one_file_are_told_apart_by_what_their_tasks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B111: each numbers its tasks from 0, and none of them is a repeat of another."""
    await part(tmp_path, "a", "xyz")
    await part(tmp_path, "b", "vw", num_repeats=2)
    client = await aggregate(tmp_path, monkeypatch)
    expected: list[tuple[int, int, str, Any]] = [(0, 0, "x", None), (1, 0, "y", None), (2, 0, "z", None)]
    expected += [(3, 0, "v", 0), (3, 1, "v", 0), (4, 0, "w", 1), (4, 1, "w", 1)]
    assert merged(tmp_path) == expected
    assert [record["_ng_task_index"] for record in client.aggregated[0][1]] == [0, 1, 2, 3, 3, 4, 4]
    shown = capsys.readouterr()
    assert f"{tmp_path / 'b' / 'out.jsonl'} numbers its tasks as another file does, but they are others" in shown.err
    assert shown.out.splitlines()[-1] == "7 asked: 7 measured, 0 failed, 0 unknown"
    assert json.loads((tmp_path / "all_coverage.json").read_text())["duplicates"] == 0


async def test_a_task_in_two_such_parts_is_one_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B59"""
    await part(tmp_path, "a", "xyz")
    await part(tmp_path, "b", "zw")
    with pytest.raises(ShardsRefusedError, match="1 record repeats a rollout: task 2, repeat 0 is in") as raised:
        await aggregate(tmp_path, monkeypatch)
    assert "Leave one of the files out, or choose --merge-anyway" in str(raised.value)
    await aggregate(tmp_path, monkeypatch, merge_anyway=True)
    assert [(number, question) for number, _, question, _ in merged(tmp_path)] == [
        (0, "x"),
        (1, "y"),
        (2, "z"),
        (2, "z"),
        (3, "w"),
    ]


async def test_tasks_that_differ_only_in_what_is_verified_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, answer in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        rows = [task("same prompt", expected_answer=answer)]
        await collect(collection_config(tmp_path / name, rows, agent_name="math_agent"), right, model("m-1"))
    await aggregate(tmp_path, monkeypatch)
    assert [number for number, *_ in merged(tmp_path)] == [0, 1]


async def test_missing_and_failed_rollouts_of_such_parts_count_under_their_new_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await part(tmp_path, "a", "xy")
    await part(tmp_path, "b", "uvw")
    output = tmp_path / "b" / "out.jsonl"
    write_jsonl(output, read_jsonl(output)[:1])
    failure = {"_ng_failure_class": "judge_failed", "_ng_task_index": 1, "_ng_rollout_index": 0}
    write_jsonl(
        tmp_path / "b" / "out_failures.jsonl", [{**failure, "_ng_environment_server": "math_environment_server"}]
    )
    zeros = {"count_failure_classes_as_zero": ["judge_failed"], "count_missing_rollouts_as_zero": True}
    client = await aggregate(tmp_path, monkeypatch, **zeros)
    scored = [(record["_ng_task_index"], record["reward"]) for record in client.aggregated[0][1]]
    assert scored == [(0, 1.0), (1, 1.0), (3, 1.0), (4, 0.0), (5, 0.0)]


async def test_without_plans_the_prompts_of_the_records_tell_and_where_there_are_none_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await part(tmp_path, "a", "xy")
    await part(tmp_path, "b", "vw")
    (tmp_path / "b" / "out_materialized_inputs.jsonl").unlink()
    await aggregate(tmp_path, monkeypatch)
    assert [(number, question) for number, _, question, _ in merged(tmp_path)] == list(
        zip((0, 1, 2, 3), "xyvw", strict=True)
    )
    output = tmp_path / "b" / "out.jsonl"
    bare = [{key: record[key] for key in record if key != "responses_create_params"} for record in read_jsonl(output)]
    write_jsonl(output, bare)
    with pytest.raises(ShardsRefusedError, match="different tasks need different `_ng_task_index`"):
        await aggregate(tmp_path, monkeypatch)


async def test_a_shard_with_a_damaged_line_says_how_to_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B53"""
    await part(tmp_path, "a", "xy")
    path = tmp_path / "a" / "out.jsonl"
    path.write_bytes(b"{torn\n" + path.read_bytes())
    with pytest.raises(RowError, match=r"out\.jsonl' at line 1, .* --resume, which keeps such lines apart"):
        await aggregate(tmp_path, monkeypatch)
