"""What the command line calls, and the helper's members that drivers call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym import rollout_collection
from nemo_gym.config.errors import ConfigError
from nemo_gym.rollout_collection import EvalRunConfig, RolloutCollectionHelper, collect_from_running_servers
from nemo_gym.rollouts.errors import OutputError, ResumeRefusedError, ServersUnavailableError
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.serve.errors import UnreachableHeadError
from tests.unit.rollouts.fakes import (
    FakeClient,
    agent,
    collection_config,
    read_jsonl,
    relay,
    right,
    served,
    task,
    write_jsonl,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEMO_GYM_RUN_DIR", str(tmp_path / "no run here"))
    return tmp_path


Serve = Callable[[Any], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Lets commands find this client behind the head server, or get this exception."""

    def install(client: Any) -> None:
        def connect(head: Any = None) -> Any:
            if isinstance(client, Exception):
                raise client
            return client

        monkeypatch.setattr(rollout_collection, "setup_server_client_utils", connect)
        monkeypatch.setattr(rollout_collection, "get_global_config_dict", lambda: served())

    return install


def wanted(**fields: Any) -> EvalRunConfig:
    return EvalRunConfig.model_validate(fields)


def test_rows_of_running_servers_are_collected(tmp_path: Path, serve: Serve) -> None:
    """The rows come from the config of the servers that run, not from the command's own."""
    write_jsonl(tmp_path / "example.jsonl", [task("a")])
    datasets = [{"name": "e", "type": "example", "jsonl_fpath": "example.jsonl"}]
    running = served(
        other_agent=agent(datasets=datasets), other_environment_server=relay("other_agent"), results_dir="results"
    )
    asked: list[str] = []

    def status(name: str) -> str:
        asked.append(name)
        return "success"

    client = FakeClient(running, right)
    client.status_of = status
    serve(client)
    collect_from_running_servers(wanted(agent_name="other_agent", output_jsonl_fpath="x.jsonl"))
    (record,) = read_jsonl(tmp_path / "x.jsonl")
    assert record["agent_ref"] == {"name": "other_agent"}
    assert sorted(asked) == ["math", "math_agent", "other_agent"], "a relay is its agent under another name"


def test_a_missing_input_is_told_before_anybody_is_waited_for(serve: Serve) -> None:
    serve(AssertionError("was asked for"))
    with pytest.raises(ConfigError, match=r"--input nope\.jsonl does not exist"):
        collect_from_running_servers(wanted(input_jsonl_fpath="nope.jsonl", output_jsonl_fpath="x.jsonl"))


def test_nobody_there_is_told_in_three_lines_at_most(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nemo_gym.rollouts.waiting._GRACE_SECONDS", 0.0)
    serve(UnreachableHeadError("No head server answers at http://127.0.0.1:11000."))
    with pytest.raises(ServersUnavailableError, match="No head server answers") as raised:
        collect_from_running_servers(wanted(output_jsonl_fpath="x.jsonl"))
    assert len(f"{raised.value}{capsys.readouterr().err}".splitlines()) <= 3
    assert raised.value.exit_code == 1


def test_bad_rows_are_told_before_servers_are_waited_for(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "rows.jsonl").write_text("{")
    client = FakeClient(served(), right)
    client.status_of = lambda name: pytest.fail("was asked")
    serve(client)
    with pytest.raises(ConfigError, match=r"rows\.jsonl' at line 1"):
        collect_from_running_servers(wanted(input_jsonl_fpath="rows.jsonl", output_jsonl_fpath="x.jsonl"))


def test_drivers_can_plan_and_read_by_themselves(tmp_path: Path) -> None:
    rows = [task("a", task_source="math"), task("b", task_source="math")]
    config = collection_config(tmp_path, rows, num_repeats=2, interleave_repeats=True)
    planned = RolloutCollectionHelper()._preprocess_rows_from_config(config)
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in planned] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert not any("agent_ref" in row for row in planned)
    assert rollout_collection._read_jsonl(tmp_path / "input.jsonl") == rows
    assert rollout_collection._failures_path_for(Path("a/x.jsonl")) == Path("a/x_failures.jsonl")


def test_who_fronts_whom() -> None:
    config: DictConfig = served(bare=agent())
    fronts = rollout_collection._environment_servers_by_agent(config)
    assert fronts == {"math_agent": ["math_environment_server"]}
    assert rollout_collection._environment_server_for_agent("math_agent", fronts) == "math_environment_server"
    with pytest.raises(ValueError, match="bare"):
        rollout_collection._environment_server_for_agent("bare", fronts)


def test_what_may_not_be_gone_on_with_is_told_before_servers_are_waited_for(tmp_path: Path, serve: Serve) -> None:
    """B07, B54: a refusal costs no start of servers."""
    rows = write_jsonl(tmp_path / "rows.jsonl", [task("a"), task("b")])
    client = FakeClient(served(), right)
    serve(client)
    fields: dict[str, Any] = {"output_jsonl_fpath": "x.jsonl", "agent_name": "math_agent"}
    collect_from_running_servers(wanted(**fields, input_jsonl_fpath=str(rows)))
    client.status_of = lambda name: pytest.fail("was asked")
    with pytest.raises(ResumeRefusedError, match="num_repeats: 1 → 2"):
        collect_from_running_servers(wanted(**fields, resume_from_cache=True, num_repeats=2))
    other = write_jsonl(tmp_path / "other.jsonl", [task("c")])
    with pytest.raises(ResumeRefusedError, match=r"input: rows\.jsonl → other\.jsonl"):
        collect_from_running_servers(wanted(**fields, resume_from_cache=True, input_jsonl_fpath=str(other)))


@pytest.mark.parametrize("resumed", [False, True])
def test_an_output_that_another_run_writes_is_told_before_servers_are_waited_for(
    tmp_path: Path, serve: Serve, resumed: bool
) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", [task("a")])
    client = FakeClient(served(), right)
    serve(client)
    fields = {"output_jsonl_fpath": "x.jsonl", "agent_name": "math_agent", "input_jsonl_fpath": str(rows)}
    collect_from_running_servers(wanted(**fields))
    client.status_of = lambda name: pytest.fail("was asked")
    with (
        ResultSet(Path("x.jsonl")).locked(),
        pytest.raises(OutputError, match=rf"Another run \(process {os.getpid()}\) is writing x\.jsonl"),
    ):
        collect_from_running_servers(wanted(**fields, resume_from_cache=resumed))
