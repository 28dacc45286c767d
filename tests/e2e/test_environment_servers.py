"""Environment servers in real runs: a real one is started and counted, an alias is not."""

import json
import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.harness import ROOT, Background, Workplace
from tests.mock_provider import MockProvider, Reply, Script, ToolCall

START = shlex.split(
    "env start --resources-server example_single_tool_call/example_single_tool_call_single_agent_turn "
    "--model-type openai_model"
)
ROWS = "resources_servers/example_single_tool_call/data/example.jsonl"
SERVER = "example_single_tool_call_environment_server"
AGENT = "example_single_tool_call_session_agent"


@pytest.fixture(scope="module")
def weather() -> Iterator[MockProvider]:
    """A model that looks up the weather once, then answers."""
    call = Reply(text=None, tool_calls=(ToolCall("get_weather", {"city": "Oslo"}),))
    with MockProvider(Script.of(call, Reply(text="It is cold."))) as mock:
        yield mock


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, weather: MockProvider) -> Iterator[tuple[Workplace, Background]]:
    workplace = Workplace(tmp_path_factory.mktemp("episodes"))
    workplace.write_env(policy_base_url=weather.base_url, policy_api_key="key-for-tests", policy_model_name="mock")
    with workplace.started(*START) as background:
        background.wait_for("All 4 / 4 servers ready!")
        yield workplace, background


def test_an_environment_server_is_started_listed_and_counted(servers: tuple[Workplace, Background]) -> None:
    place, background = servers
    listed = set(re.findall(r"^\[\d\] .*$", background.text, re.MULTILINE))  # at the start and again when ready
    assert f"[3] {SERVER} (environment_servers/single_agent_turn_legacy)" in listed and len(listed) == 4
    rows = json.loads(place.gym("env", "status", "--json").out)
    assert SERVER in {row["process_name"] for row in rows}
    assert len({row["pid"] for row in rows}) == 4


def test_rows_are_run_as_episodes_and_recorded_as_rows(servers: tuple[Workplace, Background]) -> None:
    place, _ = servers
    ended = place.gym("eval", "run", "--no-serve", "--agent", AGENT, "-i", ROWS, "-o", "r.jsonl", "--num-repeats", "2")
    assert ended.code == 0, ended.err
    records = place.read_rows("r.jsonl")
    assert [record["reward"] for record in records] == [1.0] * 10
    assert not place.read_rows("r_failures.jsonl")
    for record in records:
        kinds = [item["type"] for item in record["response"]["output"]]
        assert kinds == ["function_call", "function_call_output", "message"]
        assert "The weather in Oslo is cold." in record["response"]["output"][1]["output"]
        assert (record["_ng_environment_server"], record["_ng_result_type"]) == (SERVER, "single_agent_turn_legacy")
        assert record["agent_ref"] == {"name": AGENT}
        observed = record["ng_agent_observations"]["records"]
        assert [entry["kind"] for entry in observed] == ["agent_invocation", "tool_call"]
        assert [entry["status"] for entry in observed] == ["completed", "completed"]
    (entry,) = json.loads((place.folder / "r_aggregate_metrics.json").read_text())
    assert entry["_ng_environment_server"] == SERVER and entry["key_metrics"]["mean/reward"] == 1.0


def test_one_command_does_the_same(tmp_path_factory: pytest.TempPathFactory, weather: MockProvider) -> None:
    place = Workplace(tmp_path_factory.mktemp("one-command"))
    place.write_env(policy_base_url=weather.base_url, policy_api_key="key-for-tests", policy_model_name="mock")
    ended = place.gym("eval", "run", *START[2:], "-o", "r.jsonl", "--limit", "2", "+observability_enabled=true")
    assert ended.code == 1 and "model_call_capture_dir" in ended.error
    captures = place.folder / "captures"
    ended = place.gym(
        *("eval", "run", *START[2:], "-o", "r.jsonl", "--limit", "2", "+observability_enabled=true"),
        f"+model_call_capture_dir={captures}",
    )
    assert ended.code == 0, ended.err
    assert [record["reward"] for record in place.read_rows("r.jsonl")] == [1.0, 1.0]


def test_tasks_of_a_task_set_are_run_by_the_server_they_are_routed_to(
    tmp_path_factory: pytest.TempPathFactory, weather: MockProvider
) -> None:
    place = Workplace(tmp_path_factory.mktemp("task-set"))
    place.write_env(policy_base_url=weather.base_url, policy_api_key="key-for-tests", policy_model_name="mock")
    rows = [json.loads(line) for line in (ROOT / ROWS).read_text().splitlines()[:2]]
    tasks = [{"task_id": {"taskset": "weather", "task_id": f"q{n}"}, "task_input": row} for n, row in enumerate(rows)]
    place.write_rows("tasks.jsonl", tasks)
    block = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "example_single_tool_call"},
        "agent_server": {"type": "responses_api_agents", "name": AGENT},
        "resources_tool_transports": ["direct_http"],
    }
    config = {
        "config_paths": [f"resources_servers/example_single_tool_call/configs/{START[3].partition('/')[2]}.yaml"],
        "tasks_of_weather": {"environment_servers": {"single_agent_turn": block}},
    }
    (place.folder / "tasks.yaml").write_text(yaml.safe_dump(config))
    with place.started("env", "start", "--config", "tasks.yaml", *START[4:]) as background:
        background.wait_for("All 5 / 5 servers ready!")
        routes = "+environment_server_routes={weather: tasks_of_weather}"
        ended = place.gym("eval", "run", "--no-serve", "-i", "tasks.jsonl", "-o", "r.jsonl", routes)
    assert ended.code == 0, ended.err
    records = sorted(place.read_rows("r.jsonl"), key=lambda record: record["_ng_task_id"]["task_id"])
    assert [record["_ng_task_id"] for record in records] == [task["task_id"] for task in tasks]
    assert [record["reward"] for record in records] == [1.0, 1.0]
    assert {record["_ng_result_type"] for record in records} == {"single_agent_turn"}
