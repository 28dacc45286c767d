"""Whether a run has the descriptors it needs is known before it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import GymError
from nemo_gym.rollouts.preparation import prepare
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig
from tests.unit.rollouts.fakes import EvalRunConfig, served, task, write_jsonl

CHECK = """
import resource, sys
soft, hard, rollouts, processes = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from nemo_gym.errors import GymError
from nemo_gym.serve.limits import check_open_files
try:
    print("warned:", check_open_files(rollouts, server_processes=processes))
except GymError as error:
    print("refused:", error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def checked(soft: int, hard: int, rollouts: int, processes: int = 1) -> list[str]:
    command = [sys.executable, "-c", CHECK, *map(str, (soft, hard, rollouts, processes))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_soft_limit_is_raised_first() -> None:
    assert checked(100, 1000, 256) == ["warned: None", "1000"]


def test_more_rollouts_than_files_are_refused_with_the_way_out() -> None:
    told, _ = checked(100, 300, 256)
    assert told == (
        "refused: 256 rollouts at once need 384 open files, and this process may have 300: raise the limit with "
        "`ulimit -n 384`, or ask for fewer with --concurrency 172."
    )


def test_servers_that_may_run_short_are_a_warning() -> None:
    told, _ = checked(500, 500, 256)
    assert told.startswith("warned: 256 rollouts at once may need 640 open files in a server, which may have 500")
    assert "`ulimit -n 640`" in told and told.endswith("--concurrency 186.")
    assert checked(500, 500, 256, processes=2)[0] == "warned: None", "they share the rollouts"


def test_a_command_that_wants_too_many_ends_before_servers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B30: running out of descriptors is told before it happens."""
    fields = {"input_jsonl_fpath": str(write_jsonl(tmp_path / "in.jsonl", [task("q")]))}
    fields |= {"output_jsonl_fpath": str(tmp_path / "out.jsonl"), "agent_name": "math_agent"}
    config = EvalRunConfig.model_validate({**fields, "num_samples_in_parallel": 100_000})
    monkeypatch.setattr("nemo_gym.serve.limits.raise_open_files", lambda target: None)
    monkeypatch.setattr("nemo_gym.serve.limits.resource.getrlimit", lambda which: (1000, 1000))
    with pytest.raises(GymError, match=r"ulimit -n 100128.*--concurrency 872"):
        prepare(config, served())
    assert not (tmp_path / "out.jsonl").exists()
    prepare(config.model_copy(update={"num_samples_in_parallel": 600}), served(placement="process"))
    assert "in a server" in capsys.readouterr().err


def test_records_are_kept_in_memory_only_for_a_driver(tmp_path: Path) -> None:
    """A command that collects by itself reads them from its file; a driver may count on `run_from_config`'s list."""
    fields = {"input_jsonl_fpath": str(write_jsonl(tmp_path / "in.jsonl", [task("q")]))}
    fields |= {"output_jsonl_fpath": str(tmp_path / "out.jsonl"), "agent_name": "math_agent"}

    def kept(**more: Any) -> bool:
        return prepare(EvalRunConfig.model_validate({**fields, **more}), served()).retain_results_in_memory

    driver = {"rollout_collection_driver": "a.b:c"}
    assert [kept(), kept(**driver)] == [False, True]
    assert [kept(retain_results_in_memory=True), kept(**driver, retain_results_in_memory=False)] == [True, False]


def test_the_client_has_room_for_what_is_to_be_in_flight() -> None:
    """B43: a run of 4,096 is not held to the usual 1,024 connections per host, unless somebody says so."""

    def per_host(**config: int) -> int:
        return GlobalAIOHTTPAsyncClientConfig.model_validate(config).global_aiohttp_connector_limit_per_host

    assert per_host() == per_host(num_samples_in_parallel=4) == 1024
    assert per_host(num_samples_in_parallel=4096) == 4096
    assert per_host(num_samples_in_parallel=4096, global_aiohttp_connector_limit_per_host=10) == 10
