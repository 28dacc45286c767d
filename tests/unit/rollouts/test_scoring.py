"""Metrics: what is sent to be scored, what counts as zero, what is written and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollout_collection import RolloutAggregationConfig, RolloutAggregationHelper
from nemo_gym.rollouts import aggregation
from nemo_gym.rollouts.aggregation import AggregationError
from nemo_gym.rollouts.errors import NothingMeasuredError, OutputError, RoutingError
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.scoring import ScoredRecords, ZeroOptions
from tests.unit.rollouts.fakes import (
    FakeClient,
    FakeReply,
    Helper,
    Row,
    agent,
    collect,
    collection_config,
    read_jsonl,
    relay,
    right,
    served,
    task,
    write_jsonl,
)


def numbered(count: int, **fields: Any) -> list[Row]:
    return [task(f"q{number}", number=number, **fields) for number in range(count)]


def stamped(task_index: int, repeat: int = 0, **fields: Any) -> Row:
    return {
        "reward": 1.0,
        "_ng_task_index": task_index,
        "_ng_rollout_index": repeat,
        "agent_ref": {"name": "math_agent"},
        "_ng_environment_server": "math_environment_server",
        **fields,
    }


async def test_records_are_sent_in_order_without_their_bulk(tmp_path: Path) -> None:
    usage = {"input_tokens": 1}

    async def answer(row: Row) -> Row:
        import asyncio

        for _ in range(5 * (3 - row["number"])):
            await asyncio.sleep(0)
        response = {"output": ["bulk"], "usage": usage, "incomplete_details": None}
        return {**right(row), "response": response, "ng_trajectory": {"x": 1}, "number": row["number"]}

    config = collection_config(tmp_path, numbered(3), agent_name="math_agent", num_repeats=2)
    client = await collect(config, answer)
    ((server, records),) = client.aggregated
    assert server == "math_environment_server"
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in records] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert all(record["response"] == {"usage": usage} for record in records)
    assert not any({"ng_trajectory", "responses_create_params"} & set(record) for record in records)


async def test_the_metrics_file_has_an_entry_for_each_group(tmp_path: Path) -> None:
    client = FakeClient(served(), right)
    client.metrics = {
        "agent_metrics": {"mean/reward": 1.0, "x": 2},
        "key_metrics": {"mean/reward": 1.0},
        "group_level_metrics": [{"_ng_task_index": 0}],
        "repeat_level_metrics": [],
        "perf_summary": {"p": 1},
    }
    await Helper(client).run_from_config(collection_config(tmp_path, numbered(1), agent_name="math_agent"))
    text = (tmp_path / "out_aggregate_metrics.json").read_text()
    assert json.loads(text) == [
        {"agent_ref": {"name": "math_agent"}, "_ng_environment_server": "math_environment_server", **client.metrics}
    ]
    assert text.startswith('[\n  {\n    "agent_ref"')


async def test_no_metrics_where_they_are_not_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = await collect(collection_config(tmp_path, numbered(1), agent_name="math_agent", disable_aggregation=True))
    assert client.aggregated == []
    assert not (tmp_path / "out_aggregate_metrics.json").exists()
    shown = capsys.readouterr().out
    assert "Finished rollout collection!" in shown and "Aggregate metrics" not in shown


async def test_a_server_that_cannot_aggregate_loses_nothing(tmp_path: Path) -> None:
    client = FakeClient(served(), right)
    client.metrics = FakeReply({"why": "boom"}, status=500)
    with pytest.raises(AggregationError, match="The metrics of `math_agent` could not be computed"):
        await Helper(client).run_from_config(collection_config(tmp_path, numbered(2), agent_name="math_agent"))
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 2


async def test_many_records_are_sent_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "SPILL_RECORDS", 3)
    client = await collect(collection_config(tmp_path, numbered(8), agent_name="math_agent"))
    assert [record["_ng_task_index"] for record in client.aggregated[0][1]] == list(range(8))
    assert client.streamed == 1
    few = await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent"))
    assert (len(few.aggregated[0][1]), few.streamed) == (3, 0)


def failing(**failure: Any) -> Any:
    measured = {"level": "hard", "_private": 1}
    return lambda row: {**failure} if row["number"] == 1 else {**right(row), "number": row["number"], **measured}


async def test_failures_count_as_zero_where_their_class_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = {
        "_ng_failure_class": "judge_failed",
        "_ng_failure_message": "m",
        "failure_kind": "k",
        "failure_reason": "r",
        "mask_sample": True,
        "own": 5,
    }
    config = collection_config(
        tmp_path,
        numbered(3, level="easy", hidden=1, _private=2),
        agent_name="math_agent",
        count_failure_classes_as_zero=["judge_failed"],
    )
    client = await collect(config, failing(**failure))
    counted = client.aggregated[0][1][1]
    assert counted == {
        "own": 5,
        "mask_sample": False,
        "_ng_task_index": 1,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "math_agent"},
        "_ng_environment_server": "math_environment_server",
        "_ng_result_type": "legacy_agent",
        "reward": 0.0,
        "number": 1,
        "level": "easy",
    }
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 2, "files are as they were measured"
    shown = capsys.readouterr().out
    assert "missing from the score" not in shown
    assert "Counted with reward 0 although not measured: 1" in shown


@pytest.mark.parametrize(("has_plan", "measured"), [(True, 2), (False, 3)])
def test_a_record_that_names_no_rollout_is_none_of_the_plan(tmp_path: Path, has_plan: bool, measured: int) -> None:
    """Else it could stand for one that is missing; without a plan there is nothing else to go by."""
    rows = [{"_ng_task_index": number, "_ng_rollout_index": 0, "reward": 1.0} for number in range(2)]
    write_jsonl(tmp_path / "out.jsonl", [*rows, {}])
    if has_plan:
        write_jsonl(tmp_path / "out_materialized_inputs.jsonl", [*rows, {**rows[0], "_ng_task_index": 2}])
    records = ScoredRecords([ResultSet(tmp_path / "out.jsonl")], ZeroOptions(), lambda record: None)
    assert (records.coverage.measured, records.without_indices) == (measured, 1)


async def test_other_classes_do_not_count(tmp_path: Path) -> None:
    config = collection_config(
        tmp_path, numbered(3), agent_name="math_agent", count_failure_classes_as_zero=["judge_failed"]
    )
    client = await collect(config, failing(_ng_failure_class="agent_timeout"))
    assert [record["_ng_task_index"] for record in client.aggregated[0][1]] == [0, 2]


async def test_the_last_attempt_decides_and_a_later_success_wins(tmp_path: Path) -> None:
    fields: Row = {"agent_name": "math_agent", "count_failure_classes_as_zero": ["x"]}
    await collect(collection_config(tmp_path, numbered(3), **fields))
    write_jsonl(tmp_path / "out.jsonl", [stamped(0)])
    write_jsonl(
        tmp_path / "out_failures.jsonl",
        [
            stamped(0, _ng_failure_class="x"),
            stamped(1, _ng_failure_class="y", own=1, reward=0.5),
            stamped(1, _ng_failure_class="x", own=2, reward=0.5),
            stamped(2, _ng_failure_class="x", own=3),
            stamped(2, _ng_failure_class="y", own=4),
        ],
    )
    client = await collect(
        collection_config(tmp_path, [], **fields, resume_from_cache=True),
        lambda row: {"_ng_failure_class": "y"} if row["number"] == 2 else {"_ng_failure_class": "x", "own": 9},
    )
    records = client.aggregated[0][1]
    assert [(record["_ng_task_index"], record.get("own"), record["reward"]) for record in records] == [
        (0, None, 1.0),
        (1, 9, 0.0),
    ]


async def test_rollouts_without_any_record_count_as_zero_only_where_asked(tmp_path: Path) -> None:
    fields: Row = {"agent_name": "math_agent", "count_missing_rollouts_as_zero": True}
    answer = failing(_ng_failure_class="kill_shaped", _ng_no_persist=True)
    client = await collect(collection_config(tmp_path, numbered(3), **fields), answer)
    assert client.aggregated[0][1][1] == {
        "_ng_task_index": 1,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "math_agent"},
        "reward": 0.0,
        "number": 1,
    }
    without = await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent", overwrite=True), answer)
    assert len(without.aggregated[0][1]) == 2
    config = collection_config(tmp_path, numbered(1), **fields, disable_aggregation=True, overwrite=True)
    with pytest.raises(NothingMeasuredError):
        await collect(config, lambda row: {"_ng_failure_class": "x", "_ng_no_persist": True})


async def test_groups_are_labelled_by_their_agent_or_their_server(tmp_path: Path) -> None:
    both = {"agent_server": {"type": "responses_api_agents", "name": "math_agent"}, "entrypoint": "app.py"}
    config = served(
        second_agent=agent(),
        second_environment_server=relay("second_agent"),
        shared={"environment_servers": {"duel": both}},
    )
    client = FakeClient(config, right)
    rows = [
        stamped(0),
        stamped(1, agent_ref={"name": "second_agent"}, _ng_environment_server=None),
        stamped(2, _ng_environment_server="shared"),
        {"reward": 1.0, "_ng_task_index": 3, "_ng_rollout_index": 0},
    ]
    path = await Helper(client)._call_aggregate_metrics([{"reward": 1.0} for _ in rows], rows, tmp_path / "out.jsonl")
    assert path == tmp_path / "out_aggregate_metrics.json"
    entries = json.loads(path.read_text())
    assert {entry["_ng_environment_server"]: entry["agent_ref"]["name"] for entry in entries} == {
        "math_environment_server": "math_environment_server",
        "second_environment_server": "second_agent",
        "shared": "shared",
    }


async def test_nothing_to_score_writes_no_file(tmp_path: Path) -> None:
    assert await Helper(FakeClient(served(), right))._call_aggregate_metrics([], [], tmp_path / "out.jsonl") is None
    assert list(tmp_path.iterdir()) == []


async def test_records_of_a_server_that_does_not_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RoutingError, match="environment server `gone`"):
        rows = [stamped(0, _ng_environment_server="gone")]
        await Helper(FakeClient(served(), right))._call_aggregate_metrics(rows, rows, tmp_path / "out.jsonl")


async def aggregate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> tuple[FakeClient, Path | None]:
    client = FakeClient(served(), right)
    monkeypatch.setattr("nemo_gym.rollout_collection.setup_server_client_utils", lambda head=None: client)
    values = {
        "input_glob": f"{tmp_path}/b*.jsonl, {tmp_path}/a*.jsonl,{tmp_path}/a.jsonl",
        "output_jsonl_fpath": str(tmp_path / "all" / "merged.jsonl"),
        **fields,
    }
    return client, await RolloutAggregationHelper().run_from_config(RolloutAggregationConfig.model_validate(values))


async def test_shards_are_merged_in_order_and_scored_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [stamped(2), stamped(0)])
    write_jsonl(tmp_path / "a_failures.jsonl", [stamped(4, _ng_failure_class="x", reward=0.0)])
    write_jsonl(tmp_path / "a_materialized_inputs.jsonl", [stamped(n) for n in (0, 2, 4)])
    write_jsonl(tmp_path / "b.jsonl", [stamped(1)])
    write_jsonl(tmp_path / "b_materialized_inputs.jsonl", [stamped(n) for n in (1, 3)])
    client, metrics = await aggregate(tmp_path, monkeypatch)
    assert metrics == tmp_path / "all" / "merged_aggregate_metrics.json"
    merged = read_jsonl(tmp_path / "all" / "merged.jsonl")
    assert [record["_ng_task_index"] for record in merged] == [0, 1, 2]
    assert [record["_ng_task_index"] for record in client.aggregated[0][1]] == [0, 1, 2]
    assert "Rollouts missing from the score: 2 of 5 (x: 1)\nMetrics cover: 3 of 5" in capsys.readouterr().out
    client, _ = await aggregate(
        tmp_path,
        monkeypatch,
        merge_shards=False,
        count_failure_classes_as_zero=["x"],
        count_missing_rollouts_as_zero=True,
        output_jsonl_fpath=str(tmp_path / "z.jsonl"),
    )
    assert [record["_ng_task_index"] for record in client.aggregated[0][1]] == [0, 1, 2, 3, 4]
    assert not (tmp_path / "z.jsonl").exists()


async def test_what_was_merged_before_is_not_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [stamped(0)])
    write_jsonl(tmp_path / "a_reward_profiling.jsonl", [stamped(0)])
    here = {"input_glob": f"{tmp_path}/*.jsonl", "output_jsonl_fpath": str(tmp_path / "all.jsonl")}
    for _ in range(2):
        client, _ = await aggregate(tmp_path, monkeypatch, **here)
        assert len(client.aggregated[0][1]) == len(read_jsonl(tmp_path / "all.jsonl")) == 1
    shown = capsys.readouterr()
    assert f"{tmp_path / 'all.jsonl'} is where the merged records go" in shown.err
    assert shown.out.count("1 result files, 1 measured rollouts") == 2


async def test_a_file_is_not_merged_into_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "a.jsonl", [stamped(0)])
    itself = {"input_glob": str(tmp_path / "a.jsonl"), "output_jsonl_fpath": str(tmp_path / "a.jsonl")}
    with pytest.raises(OutputError, match=r"a\.jsonl is the only file to merge"):
        await aggregate(tmp_path, monkeypatch, **itself)
    _, metrics = await aggregate(tmp_path, monkeypatch, **itself, merge_shards=False)
    assert metrics == tmp_path / "a_aggregate_metrics.json"


async def test_globs_that_match_nothing_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "a_failures.jsonl", [])
    with pytest.raises(FileNotFoundError, match="No result files match --input-glob"):
        await aggregate(tmp_path, monkeypatch)
