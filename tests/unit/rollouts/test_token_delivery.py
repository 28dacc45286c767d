"""Collections whose model calls' tokens are captured: on the records, and out of the store when those are safe."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym.errors import GymError
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.rollouts.journal import Books
from nemo_gym.token_id_capture.store import TokenCaptureStore
from tests.unit.rollouts.fakes import FakeReply, agent, collect, collection_config, read_jsonl, served, task
from tests.unit.token_id_capture.calls import call, said


def _config(root: Path, **block: Any) -> DictConfig:
    capture = {"enabled": True, "dir": str(root), **block}
    return served(token_id_capture=capture, math_agent=agent(token_id_capture=True))


class Agent:
    """Makes one captured call per rollout, under the id that the row has."""

    def __init__(self, store: TokenCaptureStore) -> None:
        self.store = store
        self.ids: list[str] = []
        self.fails_first = False
        self.loses_all = False

    async def run(self, row: dict[str, Any]) -> Any:
        rollout_id = maybe_rollout_id_from_run_body(row) or ""
        self.ids.append(rollout_id)
        number = len(self.ids)
        await self.store.begin_call(rollout_id, f"call-{number}")
        if self.fails_first and number == 1:
            return FakeReply(b"busy", 503)
        if not self.loses_all:
            await self.store.put(call(f"call-{number}", [1], [2], rollout_id=rollout_id, output=[said("x")]))
        return {
            "responses_create_params": row["responses_create_params"],
            "response": {"output": [said("x")]},
            "reward": 1.0,
        }


@pytest.fixture
def store(tmp_path: Path) -> TokenCaptureStore:
    return TokenCaptureStore(tmp_path / "tokens")


async def test_records_carry_tokens_and_the_store_is_emptied(tmp_path: Path, store: TokenCaptureStore) -> None:
    await collect(collection_config(tmp_path, [task("a"), task("b")]), Agent(store).run, _config(store.root))
    records = read_jsonl(tmp_path / "out.jsonl")
    assert [record["response"]["output"][0]["generation_token_ids"] for record in records] == [[2], [2]]
    assert all(record["_ng_token_capture"]["n_calls"] == 1 for record in records)
    assert not any(record.get("mask_sample") for record in records)
    assert not list(store.root.glob("*.tokens.jsonl"))
    assert len(list(store.root.glob("*.tokens.state.json"))) == 2


async def test_a_second_run_does_not_find_what_the_first_left(tmp_path: Path, store: TokenCaptureStore) -> None:
    await store.put(call("stale", [8], [9], rollout_id="0-0"))
    await store.freeze("0-0")
    for _ in range(2):
        await collect(collection_config(tmp_path, [task("a")]), Agent(store).run, _config(store.root))
        (record,) = read_jsonl(tmp_path / "out.jsonl")
        assert record["_ng_token_capture"]["n_calls"] == 1
        assert "mask_sample" not in record


async def test_a_retry_is_captured_apart_from_what_failed(tmp_path: Path, store: TokenCaptureStore) -> None:
    await store.put(call("stale", [8], [9], rollout_id="0-0.r1"))
    agent = Agent(store)
    agent.fails_first = True
    config = collection_config(tmp_path, [task("a")], route_failures_to_sidecar=True)
    await collect(config, agent.run, _config(store.root))
    assert agent.ids == ["0-0", "0-0.r1"]
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert record["_ng_token_capture"]["n_calls"] == 1
    assert "mask_sample" not in record


@pytest.mark.parametrize("block", [{"enabled": False}, {"rebuild_response": False}])
async def test_records_are_left_alone_where_gym_does_not_rebuild(
    tmp_path: Path, store: TokenCaptureStore, block: dict[str, Any]
) -> None:
    await collect(collection_config(tmp_path, [task("a")]), Agent(store).run, _config(store.root, **block))
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert "_ng_token_capture" not in record
    assert len(list(store.root.glob("*.tokens.jsonl"))) == 1


async def test_agents_that_take_no_part_are_left_alone(tmp_path: Path, store: TokenCaptureStore) -> None:
    config = served(token_id_capture={"enabled": True, "dir": str(store.root)})
    await collect(collection_config(tmp_path, [task("a")]), Agent(store).run, config)
    assert "_ng_token_capture" not in read_jsonl(tmp_path / "out.jsonl")[0]


async def test_lost_tokens_mask_the_record(tmp_path: Path, store: TokenCaptureStore) -> None:
    agent = Agent(store)
    agent.loses_all = True
    await collect(collection_config(tmp_path, [task("a")]), agent.run, _config(store.root))
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert (record["mask_sample"], record["_ng_token_capture"]["capture_incomplete"]) == (True, True)


async def test_too_many_masked_rollouts_end_the_run(tmp_path: Path, store: TokenCaptureStore) -> None:
    agent = Agent(store)
    agent.loses_all = True
    config = _config(store.root, max_mask_fraction=0.5, mask_fraction_min_samples=2)
    rows = [task(str(number)) for number in range(4)]
    with pytest.raises(RuntimeError, match="2 of 2 rollouts") as caught:
        await collect(collection_config(tmp_path, rows, num_samples_in_parallel=1), agent.run, config)
    assert isinstance(caught.value, GymError)
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 2


async def test_nothing_is_retired_before_the_record_is_on_the_disk(
    tmp_path: Path, store: TokenCaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Books) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(Books, "synced", fails)
    await collect(collection_config(tmp_path, [task("a")]), Agent(store).run, _config(store.root))
    assert len(list(store.root.glob("*.tokens.jsonl"))) == 1
