"""Rows find the shard of their task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from nemo_gym.rollouts.pinning import client_of_rows, shard_of


class Client:
    def __init__(self, ports: Mapping[str, int] | None = None) -> None:
        self.ports = ports

    def at(self, ports: Mapping[str, int]) -> Self:
        return type(self)(ports)


def placed(*shards: dict[str, int]) -> dict[str, Any]:
    return {"_placement": {"shards": list(shards)}}


def test_without_shards_there_is_one_client() -> None:
    assert client_of_rows(Client(), {}) is None
    assert client_of_rows(Client(), placed({"agent": 1})) is None


def test_all_repeats_of_a_task_go_to_one_shard_and_tasks_to_all() -> None:
    client = Client()
    find = client_of_rows(client, placed({"agent": 1}, {"agent": 2}, {"agent": 3}))
    assert find is not None
    rows = [{"_ng_task_index": task, "_ng_rollout_index": repeat} for task in range(6) for repeat in range(2)]
    ports = [find(row).ports for row in rows]
    assert ports[::2] == ports[1::2] == [None, {"agent": 2}, {"agent": 3}] * 2
    assert find(rows[0]) is client


def test_rows_without_an_index_are_told_apart_by_their_prompts() -> None:
    rows = [{"responses_create_params": {"input": f"question {number}"}} for number in range(30)]
    shards = [shard_of(row, 4) for row in rows]
    assert shards == [shard_of(dict(row, other=1), 4) for row in rows]
    assert set(shards) == {0, 1, 2, 3}
