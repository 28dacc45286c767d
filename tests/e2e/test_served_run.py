"""`gym eval run`: one command that starts the servers, collects, scores and stops everything."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.harness import Workplace, question
from tests.mock_provider import MockProvider, Reply, Rule, Script

RUN = ("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model")


@pytest.fixture
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace whose model answers the first row and no other within the time of a test."""
    at_once, never = Reply(text="\\boxed{A}"), Reply(text="\\boxed{A}", latency=600)
    script = Script(rules=(Rule("Question 0", (at_once,)),), default=(never,))
    with MockProvider(script) as mock:
        workplace = Workplace(tmp_path_factory.mktemp("slow"))
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="secret-of-tests", policy_model_name="mock")
        workplace.write_rows("rows.jsonl", [question(number) for number in range(3)])
        yield workplace


def test_the_shipped_example_rows_are_used_when_none_are_named(place: Workplace) -> None:
    ended = place.gym(*RUN, "--output", "new/folder/r.jsonl", "--limit", "2")
    assert ended.code == 0, ended.err
    assert "example" in ended.err and "resources_servers/mcqa/data/example.jsonl" in ended.err
    assert len(place.read_rows("new/folder/r.jsonl")) == 2
    assert "Finished rollout collection!" in ended.out
    assert list(place.runs.glob("*/*")) == []
    assert not (place.folder / "outputs").exists()


def test_rows_are_run_as_often_as_asked_and_the_key_is_never_written(place: Workplace) -> None:
    place.write_rows("rows.jsonl", [question(0), question(1, answer="B")])
    asked = ("--num-repeats", "{_default: 3}", "--temperature", "0.5", "--model-api-key", "env:THE_KEY")
    ended = place.gym(*RUN, "-i", "rows.jsonl", "-o", "r.jsonl", *asked, THE_KEY="s3cret-value")
    assert ended.code == 0, ended.err
    records = place.read_rows("r.jsonl")
    assert sorted((r["_ng_task_index"], r["_ng_rollout_index"]) for r in records) == [
        (task, repeat) for task in range(2) for repeat in range(3)
    ]
    assert {record["responses_create_params"]["temperature"] for record in records} == {0.5}
    assert [r["reward"] for r in sorted(records, key=lambda r: r["_ng_task_index"])] == [1.0] * 3 + [0.0] * 3
    (entry,) = json.loads((place.folder / "r_aggregate_metrics.json").read_text())
    assert entry["agent_ref"]["name"] == "mcqa_simple_agent"
    assert entry["key_metrics"]["mean/reward"] == 0.5
    written = [ended.out, ended.err, *(path.read_text() for path in place.folder.glob("r*.json*"))]
    assert not any("s3cret-value" in text for text in written)


def test_results_that_exist_are_moved_aside_unless_overwritten(place: Workplace) -> None:
    place.write_rows("rows.jsonl", [question(0)])
    command = (*RUN, "-i", "rows.jsonl", "-o", "r.jsonl")
    assert place.gym(*command).code == 0
    first = (place.folder / "r.jsonl").read_bytes()
    again = place.gym(*command)
    assert again.code == 0 and "r.jsonl.1" in again.err
    assert (place.folder / "r.jsonl.1").read_bytes() == first
    assert place.gym(*command, "--overwrite").code == 0
    assert not (place.folder / "r.jsonl.2").exists()
    assert "exclude each other" in place.gym(*command, "--overwrite", "--resume").error


@pytest.mark.parametrize("name", ["policy_model", "mcqa_simple_agent"])
def test_a_server_that_dies_ends_the_run_and_is_named(slow: Workplace, name: str) -> None:
    only_once = ("+placement=process", "+server_restarts=0")
    with slow.started(*RUN, *only_once, "-i", "rows.jsonl", "-o", "r.jsonl", "--concurrency", "1") as run:
        run.wait_until(lambda: slow.lines("r.jsonl") == 1)
        (described,) = slow.runs.glob("*/*/run.json")
        pids = {server["process_name"]: server["pid"] for server in json.loads(described.read_text())["servers"]}
        os.kill(pids[name], signal.SIGKILL)
        assert run.ended() == 1
    assert f"Error: Server {name} (pid {pids[name]}) was killed by SIGKILL" in run.text
    assert "Stopped: 1 of 3 rollouts are saved in r.jsonl." in run.text and "--resume" in run.text
    assert "Traceback" not in run.text
    assert list(slow.runs.glob("*/*")) == []


def test_a_stopped_run_is_resumed(slow: Workplace, provider: MockProvider) -> None:
    with slow.started(*RUN, "-i", "rows.jsonl", "-o", "r.jsonl", "--concurrency", "1") as run:
        run.wait_until(lambda: slow.lines("r.jsonl") == 1)
        run.stop(signal.SIGTERM)
    before = len(provider.requests)
    ended = slow.gym(*RUN, "-i", "rows.jsonl", "-o", "r.jsonl", "--resume", "--model-url", provider.base_url)
    assert ended.code == 0, ended.err
    asked = [request.path for request in provider.requests[before:] if request.path.endswith("/responses")]
    assert len(asked) == 2
    assert sorted(record["_ng_task_index"] for record in slow.read_rows("r.jsonl")) == [0, 1, 2]


def test_an_interrupt_while_servers_start_ends_with_130(place: Workplace) -> None:
    place.write_env(policy_base_url="http://127.0.0.1:9/v1", policy_api_key="k", policy_model_name="m")
    with place.started(*RUN, "-o", "r.jsonl") as run:
        run.wait_for("All 3 / 3 servers ready!")
        assert run.stop(signal.SIGINT) == 130
    assert "Traceback" not in run.text


def test_a_dry_run_collects_nothing(place: Workplace) -> None:
    ended = place.gym(*RUN, "-o", "r.jsonl", "+dry_run=true")
    assert ended.code == 0, ended.err
    assert not (place.folder / "r.jsonl").exists()
