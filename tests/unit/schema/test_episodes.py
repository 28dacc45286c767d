"""The episode protocol."""

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym.episode_types import (
    BaseEpisodeRequest,
    BaseEpisodeResponse,
    EpisodeFailure,
    EpisodeId,
    TaskId,
    is_materialized_task_row,
)
from nemo_gym.tool_access import DirectHTTPToolAccess, MCPToolAccess, ToolAccess

IDS: dict[str, Any] = {"episode_id": {"rollout_id": "3-1"}, "task_id": {"taskset": "t", "task_id": "q"}}
FAILURE = {"failure_reason": "no", "terminal": True}


class Question(BaseModel):
    text: str


@pytest.mark.parametrize(("attempt", "key"), [(0, "3-1"), (2, "3-1-a2")])
def test_the_capture_key_names_the_attempt(attempt: int, key: str) -> None:
    assert EpisodeId(rollout_id="3-1", attempt=attempt).capture_key == key


@pytest.mark.parametrize("rollout_id", ["", "-a", ".a", "a/b", "a b", "a-a1", "a-a27", "a\n"])
def test_rollout_ids_that_would_be_ambiguous_are_refused(rollout_id: str) -> None:
    with pytest.raises(ValidationError):
        EpisodeId(rollout_id=rollout_id)


@pytest.mark.parametrize("rollout_id", ["a", "0-0", "a-a0", "a-a1x", "A.b_c-d"])
def test_other_rollout_ids_are_fine(rollout_id: str) -> None:
    assert EpisodeId(rollout_id=rollout_id).rollout_id == rollout_id


def test_ids_are_values() -> None:
    one = EpisodeId(rollout_id="a")

    assert one == EpisodeId(rollout_id="a") and hash(one) == hash(EpisodeId(rollout_id="a"))
    with pytest.raises(ValidationError):
        setattr(one, "attempt", 1)  # noqa: B010 (a plain assignment is refused by the type checker already)
    with pytest.raises(ValidationError):
        EpisodeId(rollout_id="a", attempt=-1)
    with pytest.raises(ValidationError):
        TaskId(taskset="", task_id="q")


def test_a_failure_leaves_out_what_it_does_not_know() -> None:
    assert EpisodeFailure.model_validate(FAILURE).model_dump() == FAILURE
    full = {**FAILURE, "failure_kind": "judge_failed", "stage": "verification"}
    assert EpisodeFailure.model_validate(full).model_dump() == full


@pytest.mark.parametrize(
    "change", [{"stage": "lunch"}, {"failure_reason": "x" * 2001}, {"bogus": 1}, {"terminal": None}]
)
def test_a_failure_is_strict(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EpisodeFailure.model_validate({**FAILURE, **change})


def test_a_failure_warns_of_an_unknown_kind() -> None:
    with pytest.warns(UserWarning, match="brand_new_kind"):
        EpisodeFailure.model_validate({**FAILURE, "failure_kind": "brand_new_kind"})


def test_a_request_types_its_task() -> None:
    body = {"episode_id": IDS["episode_id"], "task": {"task_id": IDS["task_id"], "task_input": {"text": "q"}}}

    assert BaseEpisodeRequest[Question].model_validate(body).task.task_input.text == "q"
    with pytest.raises(ValidationError):
        BaseEpisodeRequest[Question].model_validate({**body, "bogus": 1})


def test_a_response_has_a_result_or_a_failure() -> None:
    adapter = BaseEpisodeResponse[Question]

    assert adapter.model_validate({**IDS, "result": {"text": "a"}}).result == Question(text="a")
    assert adapter.model_validate({**IDS, "failure": FAILURE}).failure == EpisodeFailure.model_validate(FAILURE)
    for both_or_neither in ({}, {"result": {"text": "a"}, "failure": FAILURE}):
        with pytest.raises(ValidationError, match="exactly one"):
            adapter.model_validate({**IDS, **both_or_neither})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"task_id": {}, "task_input": None}, True),
        ({"task_id": "q", "task_input": {}}, False),
        ({"task_id": {}}, False),
        ({}, False),
    ],
)
def test_materialized_rows(row: dict[str, Any], expected: bool) -> None:
    assert is_materialized_task_row(row) is expected


ACCESS: TypeAdapter[Any] = TypeAdapter(ToolAccess)
DIRECT = {"kind": "direct_http", "name": "tools.direct", "required": True, "base_url": "http://h:1/x"}
MCP = {"kind": "mcp", "name": "tools", "required": False, "connection": {"url": "http://h:1/mcp"}}


def test_tool_access_by_kind() -> None:
    direct, mcp = ACCESS.validate_python(DIRECT), ACCESS.validate_python(MCP)

    assert (type(direct), direct.cookies, direct.headers) == (DirectHTTPToolAccess, {}, {})
    assert (type(mcp), mcp.connection.transport) == (MCPToolAccess, "streamable_http")


@pytest.mark.parametrize("change", [{"kind": "odd"}, {"name": "a b"}, {"bogus": 1}, {"base_url": "ftp://h"}])
def test_tool_access_is_strict(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ACCESS.validate_python({**DIRECT, **change})
