"""Which copy of its servers runs a row, where servers share processes: all repeats of a task go to the same one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from nemo_gym.config.keys import RESPONSES_CREATE_PARAMS_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.config.placement import placed_shards

ClientOf = Callable[[Mapping[str, Any]], Any]
"""Finds the client for a row."""


def client_of_rows(client: Any, config: Mapping[Any, Any]) -> ClientOf | None:
    """Finds each row's client in a run whose servers have copies in several shards; None where they haven't.

    The first shard is where the client itself finds the servers.
    """
    shards = placed_shards(config)
    if len(shards) < 2:
        return None
    clients = [client, *(client.at(ports) for ports in shards[1:])]
    return lambda row: clients[shard_of(row, len(clients))]


def shard_of(row: Mapping[str, Any], shards: int) -> int:
    """The shard of a row's task. Rows without an index are told apart by their prompts."""
    index = row.get(TASK_INDEX_KEY_NAME)
    if not isinstance(index, int):
        prompt = orjson.dumps(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME), option=orjson.OPT_SORT_KEYS, default=str)
        index = zlib.crc32(prompt)
    return index % shards
