"""What the journal says about a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.rollouts.indexing import index_fields
from nemo_gym.rollouts.journal import last_state, read_journal
from tests.unit.rollouts.fakes import Row, collect, collection_config, right, task

TOOL = {"type": "function_call", "name": "look"}
ANSWER = {"type": "function_call_output"}
SAID = {"type": "message"}


def record(*output: Row, **fields: Any) -> Row:
    return {"response": {"output": list(output), "usage": {"input_tokens": 7, "output_tokens": 3}}, **fields}


def test_the_fields_of_a_record() -> None:
    found = index_fields(
        record(
            SAID,
            TOOL,
            TOOL,
            ANSWER,
            ANSWER,
            {"type": "reasoning"},
            SAID,
            reward=1.0,
            extracted_answer="B" * 300,
            mask_sample=True,
            score=0.5,
            agent_ref={"name": "an_agent"},
            _ng_environment_server="a_server",
        )
    )
    assert found == {
        "agent": "an_agent",
        "server": "a_server",
        "masked": True,
        "tokens": [7, 3],
        "turns": 2,
        "tools": {"look": 2},
        "answer": "B" * 80,
        "metrics": {"score": 0.5},
    }


@pytest.mark.parametrize(
    "odd", [{}, {"response": None}, {"response": {"output": "x", "usage": []}}, {"agent_ref": "x"}]
)
def test_what_is_not_there_is_left_out(odd: Row) -> None:
    assert index_fields(odd) == {}


def test_turns_are_as_the_record_counts_them() -> None:
    assert index_fields(record(SAID, ng_perf={"num_turns": 5}))["turns"] == 5


def test_entries_stay_small_however_large_records_are() -> None:
    tools = [{**TOOL, "name": f"tool_{number}" * 30} for number in range(500)]
    metrics = {f"metric_{number}": number for number in range(500)}
    found = index_fields(record(*tools, {**SAID, "content": "x" * 1_000_000}, extracted_answer="y" * 9999, **metrics))
    assert len(orjson.dumps(found)) < 2_000
    assert (len(found["tools"]), len(found["metrics"])) == (8, 12)


async def test_a_completion_entry_is_all_a_reader_needs_to_list_records(tmp_path: Path) -> None:
    """B50: pages and filters need no record."""

    def answer(row: Row) -> Row:
        return {**right(row), "extracted_answer": "A"} if row["number"] else {"_ng_failure_class": "judge_failed"}

    rows = [task(f"q{number}", number=number) for number in range(2)]
    await collect(collection_config(tmp_path, rows, agent_name="math_agent"), answer)
    done = {entry["task"]: entry for entry in read_journal(tmp_path / "out.jsonl.journal") if entry["kind"] == "done"}
    assert (done[0]["boundary"], done[0]["failure_class"]) == ("verifier", "judge_failed")
    assert (done[1]["agent"], done[1]["server"], done[1]["answer"]) == ("math_agent", "math_environment_server", "A")
    for number, name in ((0, "out_failures.jsonl"), (1, "out.jsonl")):
        content = (tmp_path / name).read_bytes()
        line = content[done[number]["offset"] :][: done[number]["length"]]
        assert orjson.loads(line)["_ng_task_index"] == number


async def test_how_the_last_run_ended(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl.journal"
    assert last_state(path) is None
    await collect(collection_config(tmp_path, [task("q")], agent_name="math_agent"))
    assert last_state(path) == "done"
    with path.open("ab") as file:
        file.write(b'{"kind":"end","state":"torn')
    assert last_state(path) == "done"
