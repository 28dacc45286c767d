"""Finding the call that a request continues."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.token_id_capture.errors import LineageLookupError
from nemo_gym.token_id_capture.lineage import (
    CursorReset,
    FileLineageStore,
    IncrementalLineageStore,
    InMemoryLineageStore,
)
from nemo_gym.token_id_capture.records import TokenEntry
from nemo_gym.token_id_capture.store import TokenCaptureStore
from tests.unit.token_id_capture.calls import RESOLVED, ROOT, UNRESOLVED, call, said, user


class Both:
    """A file store with the lineage of files or of memory, told of the same calls."""

    def __init__(self, root: Path, kind: str, **limits: int) -> None:
        self.store = TokenCaptureStore(root)
        self.files = kind == "files"
        self.lineage: Any = FileLineageStore(root, **limits) if self.files else InMemoryLineageStore()

    async def put(self, *entries: TokenEntry) -> None:
        for entry in entries:
            await self.store.put(entry)
            if not self.files:
                await self.lineage.put(entry)

    async def resolve(self, *items: dict[str, Any]) -> Any:
        return await self.lineage.resolve("r", list(items))


@pytest.fixture(params=["files", "memory"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    return Both(tmp_path, request.param)


async def test_a_request_without_history_is_a_root(both: Both) -> None:
    assert (await both.resolve(user("hi"))).status is ROOT


async def test_a_request_that_goes_on_is_resolved_with_all_tokens(both: Both) -> None:
    first = call("a", [1], [2], output=[said("x")])
    second = call("b", [1, 2, 3], [4], parent=first, asked=[user("hi"), said("x"), user("and?")], output=[said("y")])
    await both.put(first, second)
    found = await both.resolve(user("hi"), said("x"), user("and?"))
    assert (found.status, found.parent_call_id, found.parent_tokens) == (RESOLVED, "a", [1, 2])
    found = await both.resolve(user("hi"), said("x"), user("and?"), said("y"), user("so?"))
    assert (found.parent_call_id, found.parent_tokens, found.parent_cum_len) == ("b", [1, 2, 3, 4], 4)


async def test_the_tokens_of_deltas_are_put_together(both: Both) -> None:
    first = call("a", [1], [2], output=[said("x")])
    asked = [user("hi"), said("x"), user("and?")]
    second = call("b", [1, 2, 3], [4], parent=first, asked=asked, output=[said("y")], delta=True)
    await both.put(first, second)
    found = await both.resolve(*asked, said("y"))
    assert found.parent_tokens == [1, 2, 3, 4]


async def test_what_the_request_began_with_has_to_be_the_same(both: Both) -> None:
    await both.put(call("a", [1], [2], output=[said("x")]))
    found = await both.resolve(user("something else"), said("x"))
    assert (found.status, found.reason) == (UNRESOLVED, "no_match")


async def test_calls_that_came_to_the_same_tokens_are_one(both: Both) -> None:
    await both.put(call("b", [1], [2], output=[said("x")]), call("a", [1], [2], output=[said("x")]))
    assert (await both.resolve(user("hi"), said("x"))).parent_call_id == "a"


async def test_calls_that_said_the_same_in_other_tokens_are_ambiguous(both: Both) -> None:
    await both.put(call("b", [1], [2], output=[said("x")]), call("a", [1], [3], output=[said("x")]))
    found = await both.resolve(user("hi"), said("x"))
    assert (found.status, found.reason, found.parent_call_id) == (UNRESOLVED, "ambiguous", None)


async def test_fingerprints_of_another_version_do_not_match(both: Both) -> None:
    await both.put(call("a", [1], [2], output=[said("x")]).model_copy(update={"fingerprint_version": 1}))
    assert (await both.resolve(user("hi"), said("x"))).reason == "no_match"


async def test_files_are_read_on_from_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(tmp_path, "files")
    await both.put(call("a", [1], [2], output=[said("x")]))
    await both.resolve(user("hi"), said("x"))
    fetched: list[int] = []
    fetch = FileLineageStore._fetch_new_entries

    def counting(self: FileLineageStore, rollout_id: str, cursor: Any) -> Any:
        fresh, cursor = fetch(self, rollout_id, cursor)
        fetched.append(len(fresh))
        return fresh, cursor

    monkeypatch.setattr(FileLineageStore, "_fetch_new_entries", counting)
    await both.put(call("b", [1, 5], [6], output=[said("y")]))
    assert (await both.resolve(user("hi"), said("y"))).parent_call_id == "b"
    assert fetched == [1]


async def test_a_rollout_that_began_anew_is_read_anew(tmp_path: Path) -> None:
    both = Both(tmp_path, "files")
    await both.put(call("a", [1, 1, 1, 1], [2, 2], output=[said("longer than the other")]))
    await both.resolve(user("hi"), said("x"))
    both.store.delete("r")
    await both.put(call("b", [1], [2], output=[said("x")]))
    assert (await both.resolve(user("hi"), said("x"))).parent_call_id == "b"
    assert (await both.resolve(user("hi"), said("longer than the other"))).reason == "no_match"


async def test_forgotten_tokens_are_read_again(tmp_path: Path) -> None:
    both = Both(tmp_path, "files", max_cached_tokens=2, max_cached_rollouts=1)
    first = call("a", [1], [2], output=[said("x")])
    asked = [user("hi"), said("x"), user("and?")]
    await both.put(first, call("b", [1, 2, 3], [4], parent=first, asked=asked, output=[said("y")], delta=True))
    await both.lineage.resolve("other", [user("hi"), said("x")])
    for _ in range(2):
        assert (await both.resolve(*asked, said("y"))).parent_tokens == [1, 2, 3, 4]


async def test_tokens_that_are_not_those_captured_are_an_error(tmp_path: Path) -> None:
    both = Both(tmp_path, "files")
    await both.put(call("a", [1], [2], output=[said("x")]).model_copy(update={"digest": "0" * 64}))
    with pytest.raises(LineageLookupError, match="not those"):
        await both.resolve(user("hi"), said("x"))


async def test_a_memory_gives_up_its_oldest_rollouts() -> None:
    store = InMemoryLineageStore(max_rollouts=2)
    for rollout_id in ("r1", "r2", "r3"):
        await store.put(call("a", [1], [2], output=[said("x")], rollout_id=rollout_id))
    statuses = [(await store.resolve(rollout_id, [user("hi"), said("x")])).status for rollout_id in ("r1", "r2", "r3")]
    assert statuses == [UNRESOLVED, RESOLVED, RESOLVED]
    few = InMemoryLineageStore(max_tokens=3)
    for rollout_id in ("r1", "r2"):
        await few.put(call("a", [1], [2], output=[said("x")], rollout_id=rollout_id))
    assert (await few.resolve("r1", [user("hi"), said("x")])).status is UNRESOLVED
    assert (await few.resolve("r2", [user("hi"), said("x")])).status is RESOLVED
    await few.close()
    assert (await few.resolve("r2", [user("hi"), said("x")])).status is UNRESOLVED


async def test_a_memory_can_not_build_on_what_it_never_saw() -> None:
    second = call("b", [1, 2, 3], [4], parent=call("a", [1], [2]), delta=True)
    with pytest.raises(LineageLookupError):
        await InMemoryLineageStore().put(second)


class Backend(IncrementalLineageStore):
    """A backend in a list, whose cursors end when it is turned."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[TokenEntry] = []
        self.epoch = 0

    def _fetch_new_entries(self, rollout_id: str, cursor: Any) -> tuple[list[tuple[Any, TokenEntry]], Any]:
        epoch, start = cursor or (self.epoch, 0)
        if epoch != self.epoch:
            raise CursorReset
        return list(enumerate(self.entries))[start:], (self.epoch, len(self.entries))

    def _load_entry(self, rollout_id: str, ref: Any) -> TokenEntry:
        entry: TokenEntry = self.entries[ref]
        return entry


async def test_another_backend_only_fetches_and_loads() -> None:
    backend = Backend()
    backend.entries = [call("a", [1], [2], output=[said("x")])]
    assert (await backend.resolve("r", [user("hi"), said("x")])).parent_tokens == [1, 2]
    backend.entries, backend.epoch = [call("b", [1], [3], output=[said("y")])], 1
    assert (await backend.resolve("r", [user("hi"), said("y")])).parent_tokens == [1, 3]
    assert backend.is_process_shared()
    await backend.close()
