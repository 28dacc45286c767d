"""What a collection adds to records from the captures of their rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.rollouts import dispatch
from tests.unit.rollouts.fakes import FakeReply, Row, collect, collection_config, read_jsonl, right, served, task

USAGE = {"input_tokens": 3, "output_tokens": 4}


class ObservedServers:
    """Environment servers whose model calls are captured."""

    def __init__(self, directory: Path) -> None:
        self.store = CaptureStore(directory)
        self.config = served(observability_enabled=True, model_call_capture_dir=str(directory))
        self.found_before: list[int] = []
        self.extra: dict[str, Any] = {}

    def run(self, row: Row) -> Any:
        rollout_id = str(maybe_rollout_id_from_run_body(row))
        self.found_before.append(len(self.store.read_available(rollout_id)[0]))
        response = {"id": f"r-{rollout_id}", "output": [{"type": "message"}], "usage": USAGE}
        exchange = {
            "model_call_id": f"m-{rollout_id}",
            "client_session_id": "inv",
            "started_at": 1.0,
            "request": {"input": "q"},
            "response": response,
        }
        self.store.record(rollout_id, exchange)
        bundle = {"source": "agent", "records": [{"kind": "agent_invocation", "invocation_id": "inv"}]}
        return {**right(row), "ng_agent_observations": bundle, **self.extra}


@pytest.fixture
def servers(tmp_path: Path) -> ObservedServers:
    return ObservedServers(tmp_path / "captures")


async def run_once(tmp_path: Path, servers: ObservedServers, handler: Any = None, **fields: Any) -> list[Row]:
    config = collection_config(tmp_path, [task("q0")], agent_name="math_agent", **fields)
    await collect(config, handler or servers.run, servers.config)
    return read_jsonl(tmp_path / "out.jsonl")


async def test_records_carry_capture_trajectory_and_cost(tmp_path: Path, servers: ObservedServers) -> None:
    (record,) = await run_once(tmp_path, servers)
    capture, trajectory, perf = (record[name] for name in ("ng_model_call_capture", "ng_trajectory", "ng_perf"))
    assert list(record)[-3:] == ["ng_model_call_capture", "ng_trajectory", "ng_perf"]
    assert capture["metrics"]["num_calls"] == 1 and "request" not in capture["calls"][0] and "gaps" not in capture
    assert [turn["question"] for turn in trajectory["turns"]] == ["q"]
    assert trajectory["model_calls"][0]["model_call_id"] == "m-0-0"
    assert perf["num_turns"] == 1 and perf["prompt_tokens"] == 3 and perf["total_latency_ms"] > 0


async def test_what_earlier_runs_left_of_a_rollout_is_deleted_before_it_runs(
    tmp_path: Path, servers: ObservedServers
) -> None:
    for rollout_id in ("0-0", "0-0.r1", "5-0"):
        servers.store.record(rollout_id, {"model_call_id": "stale"})
    await run_once(tmp_path, servers)
    assert servers.found_before == [0]
    assert servers.store.read("0-0.r1") == [] and len(servers.store.read("5-0")) == 1


async def test_a_resumed_run_deletes_only_captures_of_rows_it_runs(tmp_path: Path, servers: ObservedServers) -> None:
    rows = [task("q0"), task("q1")]
    await collect(collection_config(tmp_path, rows, agent_name="math_agent"), servers.run, servers.config)
    output = tmp_path / "out.jsonl"
    (done,) = [record["_ng_task_index"] for record in read_jsonl(output)[:1]]
    output.write_bytes(output.read_bytes().splitlines(keepends=True)[0])
    servers.found_before.clear()
    await collect(
        collection_config(tmp_path, [], agent_name="math_agent", resume_from_cache=True), servers.run, servers.config
    )
    assert servers.found_before == [0]
    assert len(servers.store.read(f"{done}-0")) == 1


async def test_a_retry_is_read_from_its_own_capture(
    tmp_path: Path, servers: ObservedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_FIRST_DELAYS", (0.0,))
    answers = iter([FakeReply({"busy": True}, status=503)])

    def busy_once(row: Row) -> Any:
        reply = servers.run(row)
        return next(answers, reply)

    (record,) = await run_once(tmp_path, servers, busy_once)
    assert record["ng_model_call_capture"]["rollout_id"] == "0-0.r1"
    assert record["ng_trajectory"]["rollout_id"] == "0-0.r1"
    assert record["ng_model_call_capture"]["metrics"]["num_calls"] == 1


async def test_where_nothing_ran_nothing_is_read(tmp_path: Path, servers: ObservedServers) -> None:
    config = collection_config(tmp_path, [task("q0"), task("q1")], agent_name="math_agent")

    def second_fails(row: Row) -> Any:
        return servers.run(row) if row["_ng_task_index"] == 0 else FakeReply({"no": 1}, status=400)

    await collect(config, second_fails, servers.config)
    (failure,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert not {"ng_model_call_capture", "ng_trajectory", "ng_perf"} & set(failure)


async def test_a_redacted_history_keeps_payloads_out(tmp_path: Path, servers: ObservedServers) -> None:
    bundle = {"source": "agent", "records": [], "gaps": [{"code": "multimodal_history_redacted"}]}
    servers.extra = {"ng_agent_observations": bundle}
    (record,) = await run_once(tmp_path, servers)
    (call,) = record["ng_trajectory"]["model_calls"]
    assert call["request"] is None and call["response"] is None and call["token_stats"]["prompt_tokens"] == 3


async def test_without_observability_only_what_agents_say_becomes_a_trajectory(
    tmp_path: Path, servers: ObservedServers
) -> None:
    servers.config = served()
    (record,) = await run_once(tmp_path, servers)
    assert "ng_model_call_capture" not in record and "ng_perf" not in record
    assert [entry["invocation_id"] for entry in record["ng_trajectory"]["invocations"]] == ["inv"]


async def test_captures_that_cant_be_deleted_are_told(
    tmp_path: Path, servers: ObservedServers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: CaptureStore, rollout_id: str) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(CaptureStore, "clear", refuse)
    assert len(await run_once(tmp_path, servers)) == 1
    assert "not yours" in capsys.readouterr().err
