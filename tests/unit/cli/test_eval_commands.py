"""`gym eval` around the rooms that do its work, which are stood in for here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config_types import ConfigError
from tests.unit.cli.conftest import Gym

CONFIG = """
quiz:
  resources_servers: {quiz: {entrypoint: app.py, domain: other}}
"""


class Servers:
    """Stands in for RunHelper: notes what happens to it."""

    events: list[str] = []

    def __init__(self, **options: Any) -> None:
        self.options = options

    def start(self, parser_config: object) -> None:
        self.options["server_output"].write("(quiz) Warning: key `a` is unknown.\n(quiz) serving\n")
        self.events.append("started")

    def poll(self) -> None:
        self.events.append("looked at")

    def shutdown(self) -> None:
        self.events.append("stopped")


@pytest.fixture
def events(gym: Gym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened to the servers and the collection, in order."""
    events = Servers.events = []
    (tmp_path / "quiz.yaml").write_text(CONFIG)
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    monkeypatch.setattr("nemo_gym.launch.fork_server.prestart", lambda: None)
    monkeypatch.setattr("nemo_gym.cli.env.RunHelper", Servers, raising=False)

    def collect(config: Any, global_config: object, *, argv: list[str] | None, watch: Callable[[], None]) -> None:
        events.append(f"collected {config.output_jsonl_fpath} for {argv}")
        watch()

    monkeypatch.setattr("nemo_gym.rollout_collection.run_collection", collect)
    return events


RUN = ("eval", "run", "--config", "quiz.yaml", "--input", "rows.jsonl", "--output", "r.jsonl")


def test_servers_are_started_used_and_stopped(gym: Gym, events: list[str]) -> None:
    ended = gym(*RUN)
    assert ended.code == 0, ended.err
    assert events == ["started", f"collected r.jsonl for {list(RUN)}", "looked at", "stopped"]


def test_servers_warnings_are_shown_and_the_rest_on_request(gym: Gym, events: list[str]) -> None:
    quiet = gym(*RUN)
    assert "(quiz) Warning: key `a` is unknown.\n" in quiet.err
    assert "serving" not in quiet.out + quiet.err
    assert "(quiz) serving\n" in gym(*RUN, "-v").out


def test_servers_are_stopped_when_the_collection_fails(
    gym: Gym, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConfigError("no score.")

    monkeypatch.setattr("nemo_gym.rollout_collection.run_collection", fail)
    ended = gym(*RUN)
    assert ended.code == 1 and ended.err.endswith("Error: no score.\n")
    assert events == ["started", "stopped"]


def test_rows_are_looked_at_before_servers_start(gym: Gym, events: list[str]) -> None:
    assert gym(*RUN[:-4], "--input", "nope.jsonl").code == 1
    assert events == []


def test_an_agent_that_is_not_there_is_told_before_servers_start(gym: Gym, events: list[str]) -> None:
    ended = gym(*RUN, "--agent", "nobody")
    assert ended.code == 1 and "--agent nobody: the config has no such agent" in ended.err and events == []


def test_a_run_without_servers_is_a_usage_error_with_an_example(gym: Gym, events: list[str]) -> None:
    ended = gym("eval", "run", "--input", "rows.jsonl")
    assert ended.code == 2 and "Example: gym eval run" in ended.err
    assert events == []


@pytest.fixture
def results(gym: Gym, tmp_path: Path) -> Callable[[int], None]:
    """Write a run of two rows of which some were measured."""

    def write(measured: int) -> None:
        agent = {"agent_ref": {"name": "a"}, "_ng_rollout_index": 0}
        rows = [{"_ng_task_index": task, "responses_create_params": {"input": "x"}, **agent} for task in range(2)]
        records = [{**row, "reward": 1.0, "response": {}} for row in rows[:measured]]
        (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "r.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    return write


PROFILE = ("eval", "profile", "--inputs", "m.jsonl", "--rollouts", "r.jsonl")


def test_a_profile_is_written_beside_the_results(gym: Gym, results: Callable[[int], None], tmp_path: Path) -> None:
    results(2)
    ended = gym(*PROFILE)
    assert ended.code == 0, ended.err
    assert "completed_rollout_rows: 2" in ended.out
    for name in ("r_reward_profiling.jsonl", "r_agent_metrics.json", "r_repeat_level_metrics.json"):
        assert name in ended.out and (tmp_path / name).exists()


def test_swapped_files_are_not_profiled(gym: Gym, results: Callable[[int], None], tmp_path: Path) -> None:
    results(2)
    ended = gym("eval", "profile", "--inputs", "r.jsonl", "--rollouts", "m.jsonl")
    assert ended.code == 2 and "they are swapped" in ended.err
    assert not list(tmp_path.glob("*_reward_profiling.jsonl"))


def test_an_incomplete_run_is_profiled_on_request(gym: Gym, results: Callable[[int], None]) -> None:
    results(1)
    refused = gym(*PROFILE)
    assert refused.code == 1 and "allow_partial_rollouts" in refused.err
    accepted = gym(*PROFILE, "+allow_partial_rollouts=true")
    assert accepted.code == 0 and "missing_rollout_rows: 1" in accepted.out
