"""Row schemas of servers, and rows that become tasks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from nemo_gym.task_data import (
    TaskDataSchemaError,
    TaskDataValidator,
    find_server_dir,
    legacy_metadata_fields,
    load_task_data_schema,
    normalize_task_fields,
    validate_jsonl_rows,
)
from nemo_gym.task_materialization import materialize_task

Write = Callable[[str, str], Path]
SCHEMA = """
from pydantic import BaseModel, ConfigDict, Field

class Base(BaseModel):
    model_config = ConfigDict(extra="allow")
    answer: int
    grading: "Grading | None" = None
    old: str | None = Field(default=None, json_schema_extra={"legacy_location": "verifier_metadata"})

class Grading(BaseModel):
    mode: str

class Other(BaseModel):
    text: str

TaskData = Base
"""


@pytest.fixture
def schema(write: Write) -> TypeAdapter[Any]:
    adapter = load_task_data_schema(write("resources_servers/mcqa/task_data.py", SCHEMA).parent)
    assert adapter is not None
    return adapter


def test_a_schema_is_loaded_without_the_server(schema: TypeAdapter[Any]) -> None:
    assert schema.validate_python({"answer": 1, "grading": {"mode": "x"}, "more": 2}).grading.mode == "x"
    assert legacy_metadata_fields(schema) == {"old"}


def test_a_server_may_have_no_schema(project: Path) -> None:
    assert load_task_data_schema(project) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import not_there_at_all", "ModuleNotFoundError"),
        ("x = 1", "exports no `TaskData`"),
        ("class C: pass\nTaskData = C", "no schema for pydantic"),
    ],
)
def test_a_broken_schema_is_said(write: Write, text: str, said: str) -> None:
    with pytest.raises(TaskDataSchemaError, match=said):
        load_task_data_schema(write("s/task_data.py", text).parent)


def test_the_folder_of_a_server(write: Write, project: Path) -> None:
    write("resources_servers/mcqa/app.py", "")
    assert find_server_dir("mcqa", "resources_servers") == project / "resources_servers" / "mcqa"
    assert find_server_dir("gone", "resources_servers") is None


def test_fields_of_the_task() -> None:
    row = {
        "responses_create_params": {},
        "agent_ref": {},
        "_ng_task_index": 1,
        "answer": 1,
        "verifier_metadata": {"answer": 2, "old": "x"},
        "task_data": {"old": "x", "new": 3},
    }
    assert normalize_task_fields(row) == ({"answer": 1, "old": "x", "new": 3}, ["answer"])
    assert normalize_task_fields({"task_data": "text"}) == ({"task_data": "text"}, [])


def test_rows_are_held_against_the_schema(schema: TypeAdapter[Any]) -> None:
    validator = TaskDataValidator("mcqa", schema, "rows.jsonl")
    validator.validate_row(0, {"answer": 1})
    assert validator.report.clean
    assert validator.report.summary().endswith("all fit")
    validator.validate_row(1, {"answer": "x" * 1000})
    validator.validate_row(2, {"answer": 1, "extra": 1, "old": "y"})
    validator.validate_row(3, {"answer": 1, "verifier_metadata": {"answer": 2, "old": "z"}})
    validator.validate_row(4, {"answer": 1, "old": "migrated", "task_data": {}})
    report = validator.report
    assert (report.rows, report.error_rows, report.clean) == (5, 1, False)
    assert report.errors[0].startswith("1: answer ")
    assert report.unknown_keys == {"extra": 1}
    assert report.misplaced_keys == {"old": 1}
    assert report.conflicting_keys == {"answer": 1}
    summary = report.summary()
    assert "5 rows against the task data of `mcqa`" in summary
    assert "extra (1 rows)" in summary and "all fit" not in summary


def test_errors_are_kept_few_and_short(schema: TypeAdapter[Any]) -> None:
    lines = ["", *(f'{{"answer": "a{number}"}}' for number in range(9)), "not json"]
    report = validate_jsonl_rows("mcqa", schema, "rows.jsonl", lines)
    assert (report.rows, report.error_rows, len(report.errors)) == (10, 10, 5)


def test_a_union_knows_the_fields_of_all_its_members(write: Write) -> None:
    adapter = load_task_data_schema(
        write("u/task_data.py", SCHEMA.replace("TaskData = Base", "TaskData = Base | Other")).parent
    )
    assert adapter is not None
    validator = TaskDataValidator("u", adapter, "rows.jsonl")
    validator.validate_row(0, {"text": "x"})
    validator.validate_row(1, {"answer": 1})
    assert validator.report.clean
    validator.validate_row(2, {"text": "x", "txt": "y"})
    assert validator.report.unknown_keys == {"txt": 1}


@pytest.mark.parametrize(
    ("row", "index", "expected"),
    [
        ({"task_id": "a", "problem_id": "b"}, None, "a"),
        ({"task_id": None, "problem_id": 7}, None, "7"),
        ({"instance_id": "i", "_ng_task_index": 3}, 9, "i"),
        ({"_ng_task_index": 3}, 9, "3"),
        ({"q": 1}, 0, "0"),
    ],
)
def test_ids_of_tasks(row: Mapping[str, Any], index: int | None, expected: str) -> None:
    assert materialize_task(row, taskset="t", task_index=index)["task_id"] == {"taskset": "t", "task_id": expected}


def test_the_input_of_a_task() -> None:
    row: dict[str, Any] = {
        "q": 1,
        "agent_ref": {},
        "task_source": "s",
        "skills_ref": {},
        "_ng_rollout_index": 2,
        "task_id": "a",
    }
    assert materialize_task(row, taskset="t")["task_input"] == {"q": 1, "task_id": "a"}


@pytest.mark.parametrize("index", [None, -1, True])
def test_a_row_needs_an_id_or_an_index(index: Any) -> None:
    with pytest.raises(ValueError, match="needs an index"):
        materialize_task({"q": 1}, taskset="t", task_index=index)


def test_a_task_is_not_made_twice() -> None:
    with pytest.raises(ValueError, match="already"):
        materialize_task(materialize_task({"q": 1}, taskset="t", task_index=0), taskset="t")
