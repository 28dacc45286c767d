"""One started set of foreign servers and what runs through it."""

import json
from typing import Any

import pytest

from tests.foreign.conftest import Started

TICKETS = "resources_servers/ticket_desk/data/example.jsonl"


def collect(started: Started, name: str, *argv: str) -> list[dict[str, Any]]:
    """Records of one collection with the running set, in order of task and repeat."""
    started.gym("eval", "run", "--no-serve", "--output", f"{name}.jsonl", *argv)
    records = started.place.read_rows(f"{name}.jsonl")
    return sorted(records, key=lambda record: (record["_ng_task_index"], record["_ng_rollout_index"]))


def metrics(started: Started, name: str) -> dict[str, Any]:
    (entry,) = json.loads((started.place.folder / f"{name}_aggregate_metrics.json").read_text())
    found: dict[str, Any] = entry
    return found


def essay(topic: str) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Write!"}, "topic": topic}


@pytest.fixture(scope="module")
def tickets(started: Started) -> list[dict[str, Any]]:
    return collect(started, "tickets", "--input", TICKETS, "--num-repeats", "2")


def test_tools_sessions_and_verify_of_a_config_without_environment_servers(tickets: list[dict[str, Any]]) -> None:
    assert [record["reward"] for record in tickets] == [1.0] * 8 + [0.0] * 2
    assert [record["opened_titles"] for record in tickets[:4]] == [["Broken  printer"]] * 2 + [["Lost key"]] * 2
    assert {record["_ng_environment_server"] for record in tickets} == {"ticket_desk_environment_server"}
    kinds = [item["type"] for item in tickets[0]["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert "Ticket opened: Broken  printer. We will call you." in tickets[0]["answer_seen"]


def test_cookies_reach_the_model_server_of_each_rollout(tickets: list[dict[str, Any]]) -> None:
    assert {record["response"]["metadata"]["calls_of_session"] for record in tickets} == {"2"}


def test_rows_keep_fields_that_nobody_declared(started: Started, tickets: list[dict[str, Any]]) -> None:
    rows = [json.loads(line) for line in (started.tree / TICKETS).read_text().splitlines()]
    for row, record in zip(rows, tickets[::2], strict=True):
        for key in ("a field nobody knows", "verifier_metadata", "agent_ref", "expected_titles"):
            assert record[key] == row[key]


def test_metric_hooks_of_the_resources_server(started: Started, tickets: list[dict[str, Any]]) -> None:
    entry = metrics(started, "tickets")
    assert entry["key_metrics"] == {"desk/longest_title": 15, "pass@1[avg-of-2]/recall": 80.0}
    assert entry["agent_metrics"]["majority@2/accuracy"] == 80.0
    assert entry["agent_ref"]["name"] == "ticket_desk_hand_agent"


def test_a_failing_judge_leads_to_the_sidecar(started: Started) -> None:
    started.place.write_rows("essays.jsonl", [essay("good"), essay("dull"), essay("refused")])
    records = collect(started, "judged", "--input", "essays.jsonl", "--agent", "judged_essay_patient_agent")
    assert [(record["topic"], record["reward"], record["verdict"]) for record in records] == [
        ("good", 1.0, "GOOD"),
        ("dull", 0.0, None),
    ]
    (failed,) = started.place.read_rows("judged_failures.jsonl")
    assert failed["_ng_failure_class"] == "judge_failed" and failed["mask_sample"] is True
    assert failed["topic"] == "refused" and "ClientResponseError" in failed["failure_reason"]
    assert "Traceback" not in failed["failure_reason"]
    assert metrics(started, "judged")["agent_metrics"]["mean/reward"] == 0.5
    assert {record["response"]["metadata"]["ray"] for record in records} == {"False"}


def test_a_grandchild_reads_the_config_and_works_with_another_server(started: Started) -> None:
    started.place.write_rows("below.jsonl", [{"responses_create_params": {"input": "hello"}}])
    (record,) = collect(started, "below_out", "--input", "below.jsonl", "--agent", "grandchild_check_simple_agent")
    assert record["seen_by_grandchild"] == {
        "domain": "coding",
        "desk_of_config": "ticket_desk",
        "url": started.urls()["ticket_desk"],
        "model": "rule",
        "titles": ["from below"],
    }
    assert record["reward"] == 1.0


def test_habits_of_a_script_that_owns_its_process(started: Started) -> None:
    """Its own app and lifespan, workers spawned and forked that find the script's functions, the whole config."""
    started.place.write_rows("odd.jsonl", [{"responses_create_params": {"input": "hello"}}])
    (record,) = collect(started, "odd_out", "--input", "odd.jsonl", "--agent", "odd_habits_simple_agent")
    folder = str(started.tree / "resources_servers/odd_habits")
    nested = {"model": "rule", "list": [1, {"a": None}]}
    assert record["seen"] == {
        "doubled": 42,
        "tripled": 21,
        "cwd": folder,
        "here": folder,
        "script": "app.py",
        "main": "__main__",
        "nested": nested,
        "nested_of_config": nested,
        "model_name": "rule",
        "ticked": True,
        "forked": 12,
    }


def test_an_environment_server_runs_materialised_tasks(started: Started) -> None:
    def task(name: str, **task_input: Any) -> dict[str, Any]:
        params = {"input": [{"role": "user", "content": "Please open: Lamp"}]}
        given = {"responses_create_params": params, "expected_titles": ["lamp"], **task_input}
        return {"task_id": {"taskset": "desk", "task_id": name}, "task_input": given}

    rows = [task("first"), task("twice", expected_titles=["bulb"]), task("none", give_up=True)]
    started.place.write_rows("episodes.jsonl", rows)
    records = collect(started, "tried", "--input", "episodes.jsonl", "+environment_server_routes.desk=two_tries")
    assert [(record["_ng_task_id"]["task_id"], record["rewards"]) for record in records] == [
        ("first", [1.0]),
        ("twice", [0.0, 0.0]),
    ]
    assert {record["_ng_environment_server"] for record in records} == {"two_tries"}
    (failed,) = started.place.read_rows("tried_failures.jsonl")
    assert failed["_ng_failure_message"] == "told to give up" and failed["_ng_failure_terminal"] is True
    assert failed["_ng_failure_class"] == "environment_server_failed" and failed["_ng_failure_stage"] == "agent"
