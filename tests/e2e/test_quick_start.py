"""The quick start of the README, word for word from its first step on."""

import json
import re
import shlex
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.harness import Background, Workplace, is_alive
from tests.mock_provider import MockProvider

START = shlex.split("env start --resources-server mcqa --model-type openai_model")
RUN = shlex.split(
    "eval run --no-serve --agent mcqa_simple_agent --input resources_servers/mcqa/data/example.jsonl "
    "--output results/mcqa_rollouts.jsonl --limit 5 --num-repeats 1"
)
INSTANCES = [
    "[1] mcqa (resources_servers/mcqa)",
    "[2] mcqa_simple_agent (responses_api_agents/simple_agent)",
    "[3] policy_model (responses_api_models/openai_model)",
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, provider: MockProvider) -> Iterator[tuple[Workplace, Background]]:
    workplace = Workplace(tmp_path_factory.mktemp("quick-start"))
    workplace.write_env(policy_base_url=provider.base_url, policy_api_key="key-for-tests", policy_model_name="mock")
    with workplace.started(*START) as background:
        background.wait_for("All 3 / 3 servers ready!")
        yield workplace, background


def test_start_lists_three_instances_in_order(servers: tuple[Workplace, Background]) -> None:
    lines = servers[1].text.splitlines()
    assert [line for line in lines if re.match(r"\[\d\] ", line)][:3] == INSTANCES


def test_run_prints_progress_key_metrics_and_the_files(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    ended = place.gym(*RUN)
    assert ended.code == 0, ended.err
    assert "Collecting rollouts: 100%" in ended.err and "5/5" in ended.err
    shown = re.search(r"Key metrics for mcqa_simple_agent:\n(\{.*?\n\})", ended.out, re.DOTALL)
    assert shown is not None, ended.out
    metrics = json.loads(shown[1])
    assert {"mean/reward", "pass@1[avg-of-1]/accuracy", "pass@1/accuracy"} <= metrics.keys()
    assert metrics["pass@1/accuracy"] == pytest.approx(100 * metrics["mean/reward"])
    assert (
        "Finished rollout collection! View results at:\n"
        "Fully materialized inputs: results/mcqa_rollouts_materialized_inputs.jsonl\n"
        "Rollouts: results/mcqa_rollouts.jsonl\n"
        "Aggregate metrics: results/mcqa_rollouts_aggregate_metrics.json\n"
    ) in ended.out
    records = place.read_rows("results/mcqa_rollouts.jsonl")
    assert len(records) == 5
    assert sum(record["reward"] for record in records) / 5 == pytest.approx(metrics["mean/reward"])
    assert (place.folder / "results/mcqa_rollouts.jsonl").read_bytes().endswith(b"\n")


def test_run_ends_with_the_health_of_its_records(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    ended = place.gym(*RUN, "++output_jsonl_fpath=checked/run.jsonl")
    assert ended.code == 0, ended.err
    assert "\nHealth: 5 rollouts checked, " in ended.out
    (line,) = [line for line in ended.out.splitlines() if line.startswith("Health: ")]
    assert "nothing wrong in their records; model calls were not captured" in line and "unobserved" not in ended.out
    for name in ("quality_summary.json", "run_quality_summary.json"):
        summary = json.loads((place.folder / "checked" / name).read_text())
        assert (summary["run"]["artifacts"]["records"], summary["run"]["files"]) == (5, ["run.jsonl"])
    assert len(place.read_rows("checked/rollout_verdicts.jsonl")) == 5
    unchecked = place.gym(*RUN, "++output_jsonl_fpath=unchecked/run.jsonl", "--no-health-check")
    assert unchecked.code == 0 and "Health:" not in unchecked.out
    assert not (place.folder / "unchecked/quality_summary.json").exists()


def test_profile_reads_what_the_run_wrote(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    stem = "results/profiled"
    assert place.gym(*RUN, f"++output_jsonl_fpath={stem}.jsonl").code == 0
    ended = place.gym("eval", "profile", "--inputs", f"{stem}_materialized_inputs.jsonl", "--rollouts", f"{stem}.jsonl")
    assert ended.code == 0, ended.err
    assert len(place.read_rows(f"{stem}_reward_profiling.jsonl")) == 5
    assert f"{stem}_agent_metrics.json" in ended.out


def test_status_lists_the_servers(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    rows = json.loads(place.gym("env", "status", "--json").out)
    assert [row["process_name"] for row in rows] == ["mcqa", "mcqa_simple_agent", "policy_model"]
    assert {row["status"] for row in rows} == {"success"}
    assert all(is_alive(row["pid"]) and row["uptime_seconds"] > 0 for row in rows)
    shown = place.gym("env", "status").out
    assert "✓ mcqa (resources_servers/mcqa)" in shown
    assert "3 healthy, 0 unhealthy" in shown


def test_aggregate_merges_result_files(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    assert place.gym(*RUN, "++output_jsonl_fpath=whole.jsonl").code == 0
    rows = place.read_rows("whole.jsonl")
    place.write_rows("part-1.jsonl", rows[:2])
    place.write_rows("part-2.jsonl", rows[2:])
    ended = place.gym("eval", "aggregate", "--input-glob", "part-1.jsonl,part-2.jsonl", "--output", "all.jsonl")
    assert ended.code == 0, ended.err
    assert len(place.read_rows("all.jsonl")) == 5
    assert json.loads((place.folder / "all_aggregate_metrics.json").read_text())[0]["agent_ref"]["name"]
    assert "\nHealth: 5 rollouts checked, " in ended.out


def test_logs_are_found_by_the_servers_name(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    assert place.gym("env", "logs", "mcqa").code == 0
    unknown = place.gym("env", "logs", "mcqaa")
    assert unknown.code == 1 and "Did you mean `mcqa`?" in unknown.error


def test_interrupt_ends_everything_with_exit_code_0(place: Workplace) -> None:
    with place.started(*START) as background:
        background.wait_for("All 3 / 3 servers ready!")
        rows = json.loads(place.gym("env", "status", "--json").out)
        assert background.stop(signal.SIGINT) == 0
    assert [row["pid"] for row in rows if is_alive(row["pid"])] == []
    assert "Traceback" not in background.text
    assert "Finished" in background.text
