"""`gym ps`, as text for terminals of any width."""

from __future__ import annotations

import pytest

from nemo_gym.cli.ps import view_text
from nemo_gym.cli.text_table import Column, table_lines
from nemo_gym.launch.view import CollectorView, RolloutView, RunView, ServerView


@pytest.fixture
def view() -> RunView:
    server = ServerView(
        "policy_model", "responses_api_models", "openai_model", 12, ["policy_model"], "running", restarts=1
    )
    server.uptime_s, server.cpu_s, server.memory_bytes = 7500.0, 3.25, 50 << 20
    server.in_flight, server.oldest_s = 8, 312.0
    silent = ServerView("mcqa", "resources_servers", "mcqa", 13, ["shard-1", "shard-2"], "running", answers=False)
    return RunView(
        as_of=0.0,
        port=11000,
        pid=7,
        command="gym eval run",
        uptime_s=312.0,
        findings=["Oldest: rollout 17-2 has waited 5 min 12 s in model at policy_model (/v1/responses)."],
        servers=[server, silent],
        collectors=[CollectorView(9, True, 10, 1, 2, 0.5, {}, {"in_flight": 8, "limit": 64, "waiting": 3})],
        stages={"queued": 90, "model": 8, "retry": 1},
        rollouts=[RolloutView("17-2", "model", "policy_model", 312.0, 315.0, "/v1/responses", 1)],
    )


def test_why_it_is_stuck_stands_at_the_top(view: RunView) -> None:
    """Gym#2859, Gym#3155: stage, age and rollout, in words."""
    lines = view_text(view, 200).splitlines()
    assert lines[0] == "Run at port 11000 (pid 7, up 5m12s): gym eval run"
    assert lines[1] == view.findings[0]
    assert any("policy_model" in line and "2h05m" in line and "50M" in line and "5m12s" in line for line in lines)
    assert any(line.startswith("mcqa") and "no answer" in line and "shard-1, shard-2" in line for line in lines)
    assert (
        "Collector (pid 9): 10 done, 1 failed, 2 retried, 0.5/s; 8 running of at most 64, 3 waiting for their turn"
        in lines
    )
    assert "In flight: 90 queued, 8 model, 1 retry" in lines
    row = "17-2 model 5m12s 5m15s 1 policy_model /v1/responses"
    assert any(line.split() == row.split() for line in lines)
    assert lines[-1] == "… and 8 more"


def test_a_collector_says_how_many_rows_there_are_where_it_knows(view: RunView) -> None:
    """What waits is all that hasn't begun, not only what is looked at next."""
    (known,) = view.collectors
    known.planned, known.states = 100, {"queued": 4, "running": 7, "waiting_to_retry": 1}
    lines = view_text(view, 200).splitlines()
    counts = "10 of 100 done, 1 failed, 2 retried, 0.5/s; 8 running of at most 64, 81 waiting for their turn"
    assert f"Collector (pid 9): {counts}" in lines
    known.planned, known.states = 11, {"queued": 0}
    assert any(line.endswith("8 running of at most 64") for line in view_text(view, 200).splitlines())


def test_nothing_that_explains_is_cut(view: RunView) -> None:
    view.command = "gym eval run --resources-server mcqa --output results/a-long-name-of-a-file.jsonl --limit 5"
    lines = view_text(view, 40).splitlines()
    text = " ".join(" ".join(lines).split())
    assert view.command in text and view.findings[0] in text
    assert all(len(line) <= 40 for line in lines[:6])


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_tables_fit_narrow_terminals(view: RunView, width: int) -> None:
    lines = view_text(view, width).splitlines()
    tables = [line for line in lines if line.startswith(("SERVER", "policy_model", "ROLLOUT", "17-2"))]
    assert len(tables) == 4 and all(len(line) <= width for line in tables)


def test_nothing_that_was_sent_moves_the_cursor(view: RunView) -> None:
    view.rollouts[0].detail = "\x1b[2Jtool\n"
    view.command = "gym \x1b]0;title\x07"
    text = view_text(view, 200)
    assert "\x1b" not in text and "\x07" not in text and "�[2Jtool�" in text


def test_the_least_important_columns_go_first() -> None:
    columns = (Column("NAME"), Column("A", 1), Column("B", 2), Column("N", 0, is_number=True))
    rows = [["one", "aaaa", "bbbb", "1"], ["three", "", "", "12"]]
    assert table_lines(columns, rows, 80) == ["NAME   A     B      N", "one    aaaa  bbbb   1", "three              12"]
    assert table_lines(columns, rows, 20)[0] == "NAME   A      N"
    assert table_lines(columns, rows, 10)[0] == "NAME    N"
