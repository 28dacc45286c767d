"""Foreign components named on the command line, found through `--search-dir`, beside the shipped ones."""

from pathlib import Path

import pytest

from tests.e2e.harness import Workplace
from tests.mock_provider import MockProvider, Reply, Rule, Script, ToolCall

LOST = (
    Reply(tool_calls=(ToolCall("open_ticket", {"title": "LOST KEY"}), ToolCall("list_tickets", {}))),
    Reply(text="!"),
)
WET = (Reply(tool_calls=(ToolCall("open_ticket", {"titel": "wet floor"}),)), Reply(text="sorry"))
POLICY = Script(rules=(Rule("Lost key", LOST), Rule("Wet floor", WET)), default=(Reply(text="\\boxed{A}"),))


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def test_what_tools_answer_reaches_the_model(place: Workplace, tree: Path) -> None:
    with MockProvider(POLICY) as policy:
        place.write_env(policy_base_url=policy.base_url, policy_api_key="k", policy_model_name="m")
        chosen = ("--resources-server", "ticket_desk", "--model-type", "openai_model")
        ended = place.gym("eval", "run", "--search-dir", str(tree), *chosen, "--output", "r.jsonl")
    assert ended.code == 0, ended.err
    records = sorted(place.read_rows("r.jsonl"), key=lambda record: record["_ng_task_index"])
    assert [record["reward"] for record in records] == [0.0, 1.0, 0.0, 0.0, 0.0]
    outputs = [
        [item["output"] for item in record["response"]["output"] if item["type"] == "function_call_output"]
        for record in records
    ]
    assert outputs[1] == [
        '{"number":1,"greeting":"Ticket opened: LOST KEY. We will call you."}',
        '{"titles":["LOST KEY"]}',
    ]
    (refused,) = outputs[2]
    assert "title" in refused and "Field required" in refused and "Traceback" not in refused
    assert "a_key_nobody_declared" in ended.err


def test_a_foreign_agent_drives_a_shipped_server_with_a_foreign_model(place: Workplace, tree: Path) -> None:
    place.write_env(policy_base_url="http://nobody/v1", policy_api_key="k", policy_model_name="m")
    chosen = ("--resources-server", "mcqa", "--agent-type", "hand_agent", "--model-type", "rule_model")
    ended = place.gym("eval", "run", "--search-dir", str(tree), *chosen, "--output", "r.jsonl", "--limit", "1")
    assert ended.code == 0, ended.err
    (record,) = place.read_rows("r.jsonl")
    assert record["reward"] == 0.0
    assert record["response"]["output"][0]["content"][0]["text"] == "What shall I open?"
    assert "[2] mcqa_hand_agent (responses_api_agents/hand_agent)" in ended.out


def test_the_components_own_tests_run(place: Workplace, tree: Path) -> None:
    place.write_env(policy_base_url="", policy_api_key="", policy_model_name="")
    ended = place.gym("env", "test", "+entrypoint=resources_servers/ticket_desk", NEMO_GYM_EXTRA_ROOTS=str(tree))
    assert ended.code == 0, ended.out + ended.err
    assert "5 passed" in ended.out


def test_the_schema_of_its_rows_is_shown(place: Workplace, tree: Path) -> None:
    place.write_env(policy_base_url="", policy_api_key="", policy_model_name="")
    ended = place.gym("env", "schema", "--resources-server", "ticket_desk", "--search-dir", str(tree))
    assert ended.code == 0 and '"expected_titles"' in ended.out
