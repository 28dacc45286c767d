"""One call, from what it continues to what is kept of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nemo_gym.token_id_capture import (
    CaptureContext,
    InMemoryLineageStore,
    TokenEntry,
    capture_tokens,
    current_capture_context,
    register_call_intent,
    reset_token_sink,
    resolve_parent,
    set_token_sink,
)
from tests.unit.token_id_capture.calls import RESOLVED, ROOT, UNRESOLVED, call, said, user

TOKENS = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [4], "generation_log_probs": [-0.5]}
RESPONSE = {"id": "resp", "model": "m", "output": [{**said("y"), **TOKENS}]}


class Sink:
    """Keeps entries in a list, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.entries: list[TokenEntry] = []
        self.lost: list[str] = []

    async def put(self, entry: TokenEntry) -> None:
        if self.error:
            raise self.error
        self.entries.append(entry)

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        self.lost.append(model_call_id)
        if self.error:
            raise self.error

    async def close(self) -> None: ...


class CustodySink(Sink):
    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        if self.error:
            raise self.error
        self.entries.append(call(model_call_id, [0], [0]))


class BrokenResolver(InMemoryLineageStore):
    async def resolve(self, rollout_id: str, request_items: list[dict[str, Any]]) -> Any:
        raise OSError("gone")


@contextmanager
def current(sink: Any, lineage: Any = None, **fields: Any) -> Iterator[CaptureContext]:
    context = CaptureContext("r", "b", sink, lineage, **fields)
    token = set_token_sink(context)
    try:
        yield context
    finally:
        reset_token_sink(token)


async def test_outside_of_a_call_nothing_happens() -> None:
    assert current_capture_context() is None
    await resolve_parent([user("hi")])
    await register_call_intent()
    await capture_tokens(RESPONSE)


async def test_a_continuation_is_kept_with_its_parent() -> None:
    lineage, sink = InMemoryLineageStore(), Sink()
    await lineage.put(call("a", [1], [2], output=[said("x")]))
    asked = [user("hi"), said("x"), user("and?")]
    with current(sink, lineage) as context:
        await resolve_parent(asked)
        assert (context.parent_call_id, context.parent_tokens) == ("a", [1, 2])
        await capture_tokens(RESPONSE)
        assert context.committed
    (entry,) = sink.entries
    assert (entry.parent_resolution, entry.parent_call_id, entry.model) == (RESOLVED, "a", "m")
    assert (entry.response_id, entry.token_item_index, entry.cum_len) == ("resp", 0, 4)
    found = await lineage.resolve("r", [*asked, said("y"), user("more")])
    assert found.parent_tokens == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("lineage", "items", "status", "reason"),
    [
        (None, [user("hi")], ROOT, ""),
        (None, None, ROOT, ""),
        (None, [said("x")], UNRESOLVED, "resolver_unavailable"),
        (BrokenResolver(), [said("x")], UNRESOLVED, "lookup_error"),
        (BrokenResolver(), [user("hi")], ROOT, ""),
    ],
)
async def test_what_a_call_continues_is_on_its_record(lineage: Any, items: Any, status: Any, reason: str) -> None:
    sink = Sink()
    with current(sink, lineage):
        await resolve_parent(items)
        await capture_tokens(RESPONSE)
    assert (sink.entries[0].parent_resolution, sink.entries[0].parent_resolution_reason) == (status, reason)


@pytest.mark.parametrize(
    "response",
    [
        {"id": "x", "output": [said("y")]},
        {"id": "x", "output": [{**said("y"), "prompt_token_ids": [1]}]},
        {"id": "x", "output": []},
        None,
    ],
)
async def test_an_answer_whose_tokens_are_missing_is_noted_at_once(response: Any) -> None:
    sink = Sink()
    with current(sink) as context:
        await resolve_parent([user("hi")])
        await capture_tokens(response)
        await capture_tokens(response)
        assert not context.committed
    assert (sink.entries, sink.lost) == ([], ["b"])


async def test_not_even_a_sink_that_is_gone_fails_a_call() -> None:
    sink = Sink(OSError("gone"))
    with current(sink):
        await capture_tokens(RESPONSE, [user("hi")])
    assert sink.lost == ["b"]


async def test_an_intent_is_told_before_and_its_failure_fails_the_call() -> None:
    sink = CustodySink()
    with current(sink) as context:
        await register_call_intent()
        assert context.generation_started
    assert [entry.model_call_id for entry in sink.entries] == ["b"]
    with current(CustodySink(OSError("frozen"))) as context:
        with pytest.raises(OSError, match="frozen"):
            await register_call_intent()
        assert not context.generation_started


async def test_staged_calls_leave_no_entry() -> None:
    sink = Sink()
    with current(sink, external_staging=True):
        await capture_tokens(RESPONSE)
    assert (sink.entries, sink.lost) == ([], [])
