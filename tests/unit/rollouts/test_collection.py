"""A collection from input rows to files and figures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.config.errors import ConfigError
from nemo_gym.rollouts import dispatch, errors
from nemo_gym.rollouts.journal import read_journal
from nemo_gym.rollouts.options import EvalRunConfig
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
)


def failing(*numbers: int, **failure: Any) -> Any:
    """Right answers but for the rows with these numbers."""

    def answer(row: Row) -> Any:
        return (failure or FakeReply(b"no", status=500)) if row["number"] in numbers else right(row)

    return answer


def numbered(count: int) -> list[Row]:
    return [task(f"q{number}", number=number) for number in range(count)]


async def test_what_a_person_reads_and_the_files_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = collection_config(
        tmp_path, numbered(5), output_jsonl_fpath="results/mcqa_rollouts.jsonl", agent_name="math_agent"
    )
    await collect(config, lambda row: {**right(row), "reward": float(row["number"] != 2)})
    shown = capsys.readouterr()
    assert shown.out == (
        "\nKey metrics for math_agent:\n"
        "{\n"
        '    "mean/reward": 0.8\n'
        "}\n"
        "Finished rollout collection! View results at:\n"
        "Fully materialized inputs: results/mcqa_rollouts_materialized_inputs.jsonl\n"
        "Rollouts: results/mcqa_rollouts.jsonl\n"
        "Aggregate metrics: results/mcqa_rollouts_aggregate_metrics.json\n"
        "5 asked: 5 measured, 0 failed, 0 unknown\n"
    )
    assert "Collecting rollouts: 100%|" in shown.err and "| 5/5 [" in shown.err
    for name in ("", "_failures", "_materialized_inputs"):
        assert (tmp_path / f"results/mcqa_rollouts{name}.jsonl").exists()


async def test_a_record_is_the_result_stamped_with_its_identity(tmp_path: Path) -> None:
    row = task("q", task_source="math", secret="only in the plan", _ng_rollout_id="mine")
    await collect(
        collection_config(tmp_path, [row], skills=None),
        lambda sent: {**right(sent), "_ng_task_index": 99, "agent_ref": "x"},
    )
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert record == {
        "responses_create_params": {"input": "q"},
        "response": {"output": []},
        "reward": 1.0,
        "_ng_task_index": 0,
        "agent_ref": {"name": "math_agent"},
        "_ng_rollout_index": 0,
        "task_source": "math",
        "_ng_rollout_id": "mine",
        "_ng_environment_server": "math_environment_server",
        "_ng_result_type": "legacy_agent",
    }
    (planned,) = read_jsonl(tmp_path / "out_materialized_inputs.jsonl")
    assert planned == {**row, "agent_ref": {"name": "math_agent"}, "_ng_task_index": 0, "_ng_rollout_index": 0}


async def test_lines_are_compact_and_end_in_a_newline(tmp_path: Path) -> None:
    await collect(
        collection_config(tmp_path, numbered(2), agent_name="math_agent"), lambda row: {"reward": 1.0, "é": 1}
    )
    content = (tmp_path / "out.jsonl").read_bytes()
    assert content.startswith('{"reward":1.0,"é":1,'.encode())
    assert content.endswith(b"}\n") and content.count(b"\n") == 2


async def test_a_bad_row_is_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = collection_config(tmp_path, numbered(3), agent_name="math_agent")
    await collect(config, failing(1))
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 2
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failure == {
        "_ng_failure_class": "agent_run_error",
        "_ng_failure_type": "ClientResponseError",
        "_ng_failure_message": "500, message='failed', url='http://127.0.0.1:1/run'",
        "_ng_failure_http_status": 500,
        "_ng_failure_response_body": "no",
        "_ng_task_index": 1,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "math_agent"},
        "_ng_environment_server": "math_environment_server",
        "_ng_result_type": "legacy_agent",
    }
    shown = capsys.readouterr()
    assert "Rollout 1-0 dropped from the score: class=agent_run_error error=500, message=" in shown.err
    assert "Rollouts missing from the score: 1 of 3 (agent_run_error: 1)\nMetrics cover: 2 of 3\n" in shown.out


async def test_the_body_of_a_failure_is_cut_and_its_origin_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_FIRST_DELAYS", (0.0,))
    cause = json.dumps({"server": "policy_model", "error": "HTTPError", "message": "overloaded", "status": 529})
    reply = FakeReply(b"\xff" * 3 + b"x" * 9000, status=500, headers={"X-NeMo-Gym-Cause": cause})
    config = collection_config(tmp_path, numbered(2), agent_name="math_agent")
    await collect(config, lambda row: reply if row["number"] else right(row))
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failure["_ng_failure_response_body"] == "\ufffd" * 3 + "x" * 1997 + "…"
    assert failure["_ng_failure_cause"] == json.loads(cause)


async def test_a_failure_that_was_asked_to_abort_does_and_what_was_measured_stays(tmp_path: Path) -> None:
    config = collection_config(
        tmp_path, numbered(3), agent_name="math_agent", route_failures_to_sidecar=False, num_samples_in_parallel=1
    )
    with pytest.raises(Exception, match="500"):
        await collect(config, failing(1))
    assert [record["_ng_task_index"] for record in read_jsonl(tmp_path / "out.jsonl")] == [0]


async def test_failures_that_results_declare_go_to_the_failures_file(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(2), agent_name="math_agent", route_failures_to_sidecar=False)
    await collect(config, failing(0, _ng_failure_class="judge_failed", reward=0.0, _ng_failure_terminal=True))
    assert [record["_ng_task_index"] for record in read_jsonl(tmp_path / "out.jsonl")] == [1]
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert (failure["_ng_task_index"], failure["_ng_failure_class"]) == (0, "judge_failed")


async def test_a_result_that_must_not_be_kept_is_in_neither_file(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(2), agent_name="math_agent")
    await collect(config, failing(0, _ng_failure_class="kill_shaped", _ng_no_persist=True))
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 1
    assert read_jsonl(tmp_path / "out_failures.jsonl") == []


@pytest.mark.parametrize("reply", [b"[1]", b'"text"'])
async def test_a_reply_that_is_no_object_is_a_failed_rollout(tmp_path: Path, reply: bytes) -> None:
    config = collection_config(tmp_path, numbered(2), agent_name="math_agent")
    await collect(config, lambda row: right(row) if row["number"] else FakeReply(reply))
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failure["_ng_failure_class"] == "environment_server_failed"


TASK_ROW = {"task_id": {"taskset": "ts", "task_id": "q"}, "task_input": {}}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            {"failure": {"failure_reason": "why", "terminal": True, "stage": "seed", "partial_response": None}},
            {
                "_ng_failure_class": "environment_server_failed",
                "_ng_failure_terminal": True,
                "_ng_failure_message": "why",
                "_ng_failure_stage": "seed",
            },
        ),
        ({"result": {"reward": 1.0, "_ng_x": 1}}, {"_ng_failure_type": "ReplyError"}),
        ({"result": {"ng_perf": {}}}, {"_ng_failure_type": "ReplyError"}),
        ({"result": 3}, {"_ng_failure_type": "ReplyError"}),
        ({"failure": "no"}, {"_ng_failure_type": "ReplyError"}),
    ],
)
async def test_episodes_that_fail_or_are_malformed_are_failed_rollouts(
    tmp_path: Path, reply: Row, expected: Row
) -> None:
    config = collection_config(
        tmp_path,
        [TASK_ROW, task("q", number=1, agent_ref={"name": "math_agent"})],
        environment_server_routes={"ts": "math_environment_server"},
    )

    def answer(body: Row) -> Any:
        if "task" not in body:
            return right(body)
        return {"episode_id": body["episode_id"], "task_id": body["task"]["task_id"], **reply}

    await collect(config, answer)
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert expected.items() <= failure.items()
    assert failure["_ng_failure_class"] == "environment_server_failed"


async def test_nothing_measured_is_an_error_that_counts_the_kinds(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(3), agent_name="math_agent")
    with pytest.raises(errors.NothingMeasuredError, match=r"failed \(agent_run_error: 3; see .*out_failures\.jsonl\)"):
        await collect(config, failing(0, 1, 2))
    assert isinstance(errors.NothingMeasuredError("x"), RuntimeError)


async def test_drained_rows_are_written_nowhere_and_told(tmp_path: Path) -> None:
    config = collection_config(
        tmp_path, numbered(2), agent_name="math_agent", dispatch_budget_s=0.0, num_samples_in_parallel=1
    )
    with pytest.raises(errors.NothingMeasuredError, match="2 not started before the dispatch budget was spent"):
        await collect(config)
    assert read_jsonl(tmp_path / "out_failures.jsonl") == []
    outcomes = [entry["outcome"] for entry in read_journal(tmp_path / "out.jsonl.journal") if entry["kind"] == "done"]
    assert outcomes == ["drained", "drained"]


async def test_require_complete_fails_after_everything_is_saved(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(3), agent_name="math_agent", require_complete=True)
    with pytest.raises(errors.IncompleteRunError, match="EVAL FAILED: 2/3 samples completed"):
        await collect(config, failing(1))
    assert (tmp_path / "out_aggregate_metrics.json").exists()
    await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent", require_complete=True))


async def test_results_are_returned_in_order_when_they_are_retained(tmp_path: Path) -> None:
    async def slow_first(row: Row) -> Row:
        for _ in range(20 if row["number"] == 0 else 0):
            await asyncio.sleep(0)
        return {"reward": float(row["number"])}

    config = collection_config(tmp_path, numbered(3), agent_name="math_agent", num_repeats=2)
    results = await Helper(FakeClient(served(), slow_first)).run_from_config(config)
    assert [(r["_ng_task_index"], r["_ng_rollout_index"], r["reward"]) for r in results] == [
        (0, 0, 0.0),
        (0, 1, 0.0),
        (1, 0, 1.0),
        (1, 1, 1.0),
        (2, 0, 2.0),
        (2, 1, 2.0),
    ]
    assert read_jsonl(tmp_path / "out.jsonl")[0]["_ng_task_index"] == 1, "the file is in completion order"
    lean = collection_config(tmp_path, numbered(3), agent_name="math_agent", retain_results_in_memory=False)
    client = FakeClient(served(), right)
    assert await Helper(client).run_from_config(lean) == []
    assert len(client.aggregated[0][1]) == 3


async def test_concurrency_is_kept_and_rows_start_in_input_order(tmp_path: Path) -> None:
    async def answer(row: Row) -> Row:
        await asyncio.sleep(0)
        return right(row)

    config = collection_config(tmp_path, numbered(30), agent_name="math_agent", num_samples_in_parallel=4)
    client = await collect(config, answer)
    assert client.most_in_flight == 4
    assert [row["number"] for row in client.runs] == list(range(30))


async def test_rows_are_read_from_the_plan_only_as_they_are_needed(tmp_path: Path) -> None:
    """B46: what is in memory depends on concurrency, not on the number of rows."""
    resident: list[int] = []
    config = collection_config(tmp_path, numbered(200), agent_name="math_agent", num_samples_in_parallel=2)

    async def answer(row: Row) -> Row:
        resident.append(len([each for each in asyncio.all_tasks() if "Dispatcher" in repr(each)]))
        await asyncio.sleep(0)
        return right(row)

    await collect(config, answer)
    assert 0 < max(resident) <= 4


async def test_the_fallback_for_rows_without_an_agent_is_the_only_one_there_is(tmp_path: Path) -> None:
    await collect(collection_config(tmp_path, numbered(1)))
    assert read_jsonl(tmp_path / "out.jsonl")[0]["agent_ref"] == {"name": "math_agent"}
    two = served(second_agent=agent(), second_environment_server=relay("second_agent"))
    with pytest.raises(ConfigError, match=r"choose one by --agent \(math_agent and second_agent\)"):
        await collect(collection_config(tmp_path, numbered(1)), served_config=two)


async def test_rows_go_to_several_agents_and_each_gets_its_own_metrics(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(2), fan_out={"math_agent": ["math_agent", "second_agent"]})
    two = served(second_agent=agent(), second_environment_server=relay("second_agent"))
    rows = [{**row, "agent_ref": {"name": "math_agent"}} for row in numbered(2)]
    (tmp_path / "input.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    client = await collect(config, served_config=two)
    assert sorted(server for server, path, _ in client.posts if path == "/run") == [
        "math_environment_server",
        "math_environment_server",
        "second_environment_server",
        "second_environment_server",
    ]
    metrics = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert sorted(entry["agent_ref"]["name"] for entry in metrics) == ["math_agent", "second_agent"]


async def test_a_prompt_fills_the_rows_and_refuses_those_with_an_input(tmp_path: Path) -> None:
    (tmp_path / "prompt.yaml").write_text("user: 'What is {question}?'\nsystem: Be brief.\n")
    rows: list[Row] = [{"question": "1+1", "responses_create_params": {"temperature": 0.1}}, {"question": "2+2"}]
    prompt = str(tmp_path / "prompt.yaml")
    client = await collect(collection_config(tmp_path, rows, prompt_config=prompt, agent_name="math_agent"))
    assert client.runs[0]["responses_create_params"] == {
        "temperature": 0.1,
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1+1?"}],
    }
    with pytest.raises(ConfigError, match=r"input` already: .*input\.jsonl, line 1"):
        await collect(collection_config(tmp_path, [{**task("given"), "question": "x"}, *rows], prompt_config=prompt))
    with pytest.raises(ConfigError, match=r"line 2: The prompt needs the field `question`"):
        await collect(collection_config(tmp_path, [rows[0], {"other": 1}], prompt_config=prompt))


async def test_interleaved_plans_are_dispatched_in_rounds(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(3), agent_name="math_agent", num_repeats=2, interleave_repeats=True)
    client = await collect(config)
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in client.runs]
    assert keys == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    planned = read_jsonl(tmp_path / "out_materialized_inputs.jsonl")
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in planned] == keys


async def test_many_failures_are_listed_once_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = collection_config(tmp_path, numbered(40), agent_name="math_agent")
    await collect(config, failing(*range(1, 40)))
    shown = capsys.readouterr().err
    assert shown.count("dropped from the score") == 10
    assert shown.count("Further failures are only counted") == 1
    assert "failed=39" in shown


async def test_a_bad_plan_leaves_older_results_alone(tmp_path: Path) -> None:
    await collect(collection_config(tmp_path, numbered(1), agent_name="math_agent"))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("out*")}
    with pytest.raises(ConfigError):
        await collect(collection_config(tmp_path, [task("q"), {"no": "params"}], agent_name="math_agent"))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("out*")} == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_driver_hands_over_its_results_to_have_them_counted(tmp_path: Path) -> None:
    config = collection_config(tmp_path, numbered(3), agent_name="math_agent", require_complete=True)
    results: list[dict[str, Any]] = [
        {"_ng_task_index": 0, "_ng_rollout_index": 0},
        {"_ng_task_index": 0, "_ng_rollout_index": 0, "stage_index": 1},
        {"_ng_task_index": 1, "_ng_rollout_index": 0, "_ng_failure_class": None},
    ]
    config.check_completion(expected=3, results=results)
    twice_and_failed = [*results[:2], results[0], {**results[2], "_ng_failure_class": "agent_timeout"}]
    with pytest.raises(RuntimeError, match="2/3 samples completed"):
        config.check_completion(expected=3, results=twice_and_failed)


def test_an_empty_input_is_no_choice(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="unset variable"):
        EvalRunConfig.model_validate({"input_jsonl_fpath": "", "output_jsonl_fpath": str(tmp_path / "out.jsonl")})
