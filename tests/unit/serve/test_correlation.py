from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from nemo_gym.rollout_correlation import (
    RolloutContextMiddleware,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
)
from nemo_gym.serve.correlation import RolloutIdGuard
from nemo_gym.serve.guards import refuse
from nemo_gym.server_utils import apply_rollout_prefix, rollout_path_prefix
from tests.unit.serve.toys import call_app


class Row(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)

    capture_rollout_id: str | None = Field(default=None, alias="_ng_rollout_id", exclude=True)


BODIES = [
    (None, None),
    ({}, None),
    ({"_ng_task_index": 3}, None),
    ({"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
    ({"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_attempt_index": 0}, "0-0"),
    ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
    ({"_ng_rollout_id": "mine.1", "_ng_task_index": 3, "_ng_rollout_index": 1}, "mine.1"),
    ({"_ng_rollout_id": "mine", "_ng_attempt_index": 2}, "mine-a2"),
]


@pytest.mark.parametrize(("body", "rollout_id"), BODIES, ids=repr)
def test_the_id_follows_from_the_row(body: dict[str, Any] | None, rollout_id: str | None) -> None:
    assert maybe_rollout_id_from_run_body(body) == rollout_id
    if body is not None:
        assert maybe_rollout_id_from_run_body(Row.model_validate(body)) == rollout_id


NO_IDS = ["", "-a", ".a", "..", "a/b", "../../etc/passwd", "a b", "ä", "a\n", "a\0", "a" * 201]


@pytest.mark.parametrize("rollout_id", [*NO_IDS, 7, ["a"]])
def test_an_id_that_is_none_is_refused(rollout_id: Any) -> None:
    with pytest.raises(ValueError, match="_ng_rollout_id is"):
        maybe_rollout_id_from_run_body({"_ng_rollout_id": rollout_id})


@pytest.mark.parametrize("task", ["../x", {"a": 1}, -1, 1e300, "x" * 200])
def test_indices_that_make_no_id_are_refused(task: Any) -> None:
    with pytest.raises(ValueError, match="_ng_task_index-_ng_rollout_index is"):
        maybe_rollout_id_from_run_body({"_ng_task_index": task, "_ng_rollout_index": 1})


def test_an_attempt_that_makes_an_id_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 200 characters"):
        maybe_rollout_id_from_run_body({"_ng_rollout_id": "a" * 199, "_ng_attempt_index": 1})


@pytest.mark.parametrize("middleware", [RolloutContextMiddleware, RolloutIdGuard])
@pytest.mark.parametrize("rollout_id", NO_IDS)
async def test_a_path_with_what_is_no_id_is_refused(middleware: Any, rollout_id: str) -> None:
    """B107: ids name files of captures."""
    reached = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append((scope["path"], current_rollout_id()))
        await refuse(send, 404, "")

    status, _, body = await call_app(middleware(app), f"/ng-rollout/{rollout_id}/v1/responses")
    if (rollout_id and "/" not in rollout_id) or rollout_id.startswith(".."):
        assert status == 400 and b"an id of a rollout" in body and not reached
    else:
        assert status == 404 and all(current in (None, "a") for _, current in reached)  # another path, or another id


async def test_a_guarded_path_keeps_its_prefix() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(send, 299, scope["path"])

    for path in ("/ng-rollout/7-0/v1/responses", "/run"):
        status, _, body = await call_app(RolloutIdGuard(app), path)
        assert status == 299 and path.encode() in body


def test_contexts_nest_and_end() -> None:
    with rollout_context("a"):
        with rollout_context("b"):
            assert current_rollout_id() == "b"
        assert current_rollout_id() == "a"
    assert current_rollout_id() is None


async def test_tasks_have_their_own_context() -> None:
    async def work(name: str) -> str | None:
        with rollout_context(name):
            await asyncio.sleep(0)
            return current_rollout_id()

    assert list(await asyncio.gather(work("a"), work("b"))) == ["a", "b"]


def test_prefixes() -> None:
    assert rollout_path_prefix(None) == rollout_path_prefix("", token_capture=True) == ""
    assert rollout_path_prefix("1-2") == "/ng-rollout/1-2"
    assert rollout_path_prefix("1-2", token_capture=True) == "/ng-rollout/1-2/training-token-capture"
    assert apply_rollout_prefix("http://h:1/", "x") == "http://h:1/ng-rollout/x"
    assert apply_rollout_prefix("http://h:1/", None) == "http://h:1"


PATHS = [
    ("/verify", None, "/verify", None),
    ("/ng-rollout/3-1/verify", "3-1", "/verify", False),
    ("/ng-rollout/3-1/v1/responses", "3-1", "/v1/responses", False),
    ("/ng-rollout/3-1/training-token-capture/v1/responses", "3-1", "/v1/responses", True),
    ("/ng-rollout/3-1/training-token-capture", "3-1", "/training-token-capture", False),
    ("/ng-rollout/3-1", None, "/ng-rollout/3-1", None),
    ("/ng-rollout//verify", None, "/ng-rollout//verify", None),
    ("/ng-rolloutx/3-1/verify", None, "/ng-rolloutx/3-1/verify", None),
]


@pytest.mark.parametrize(("path", "rollout_id", "inner_path", "token_capture"), PATHS)
async def test_the_middleware_strips_the_prefix_and_sets_the_context(
    path: str, rollout_id: str | None, inner_path: str, token_capture: bool | None
) -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.update(scope, current=current_rollout_id())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    await call_app(RolloutContextMiddleware(app), path)
    assert (seen["path"], seen["raw_path"], seen["current"]) == (inner_path, inner_path.encode(), rollout_id)
    assert seen.get("nemo_gym.token_capture") is token_capture
    assert current_rollout_id() is None
