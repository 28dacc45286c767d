"""Asking each environment server for the metrics of its records, and writing what they answer."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from nemo_gym.config.keys import AGENT_REF_KEY_NAME, RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.config.notices import warn
from nemo_gym.results.labels import label_runs
from nemo_gym.rollouts.dispatch import RolloutClient
from nemo_gym.rollouts.errors import OutputError, RolloutError, RoutingError
from nemo_gym.rollouts.failures import describe, failure_row, is_request_failure
from nemo_gym.rollouts.keys import (
    NG_AGENT_OBSERVATIONS_KEY,
    NG_ENVIRONMENT_SERVER_KEY,
    NG_MODEL_CALL_CAPTURE_KEY,
    NG_TRAJECTORY_KEY,
)
from nemo_gym.rollouts.materialise import agent_of
from nemo_gym.rollouts.topology import Topology

SPILL_RECORDS = 4_000
"""Records of one server kept in memory; more are sent from a temporary file."""

_DROPPED = frozenset(
    {
        RESPONSE_KEY_NAME,
        RESPONSES_CREATE_PARAMS_KEY_NAME,
        NG_AGENT_OBSERVATIONS_KEY,
        NG_MODEL_CALL_CAPTURE_KEY,
        NG_TRAJECTORY_KEY,
    }
)
_KEPT_OF_RESPONSE = ("usage", "incomplete_details")
_OPTIONAL = ("perf_summary",)
_FIELDS = ("agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics")


class AggregationError(RolloutError):
    """A server could not compute metrics; the records are saved."""


class _Group:
    """The records of one environment server."""

    def __init__(self) -> None:
        self.agents: set[str] = set()
        self._records: list[dict[str, Any]] = []
        self._file: IO[bytes] | None = None

    def add(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(b"," + orjson.dumps(record))
            return
        self._records.append(record)
        if len(self._records) > SPILL_RECORDS:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
            self._file.write(b'{"verify_responses":[' + b",".join(map(orjson.dumps, self._records)))
            self._records.clear()

    def body(self) -> dict[str, Any]:
        """The arguments of the request that carries these records."""
        if self._file is None:
            return {"json": {"verify_responses": self._records}}
        self._file.write(b"]}")
        self._file.seek(0)
        return {"data": self._file, "headers": {"Content-Type": "application/json"}}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def aggregate(
    records: Iterable[Mapping[str, Any]],
    topology: Topology,
    client: RolloutClient,
    raise_for_status: Callable[[Any], Awaitable[None]],
    output: Path,
) -> Path | None:
    """Write the metrics of `records`, in the order given, to `output` and print the key ones.

    Returns None, and writes nothing, when no record belongs to a server. Raises RoutingError for a record of a server
    the config doesn't have, AggregationError when a server fails.
    """
    groups = _group(records, topology)
    if not groups:
        return None
    labels = label_runs({server: group.agents for server, group in groups.items()})
    entries: list[dict[str, Any]] = []
    try:
        asking = [_ask(server, labels[server], group, client, raise_for_status) for server, group in groups.items()]
        for answer in asyncio.as_completed(asking):
            entries.append(await answer)
            _print_key_metrics(entries[-1])
    finally:
        for group in groups.values():
            group.close()
    _write(output, entries)
    return output


def _group(records: Iterable[Mapping[str, Any]], topology: Topology) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    nobodys = 0
    for record in records:
        server = server_of_record(record, topology)
        if server is None:
            nobodys += 1
            continue
        group = groups.setdefault(server, _Group())
        agent = agent_of(record)
        group.agents.update([agent] if agent else [])
        group.add(_metric_fields(record))
    if nobodys:
        warn(f"{nobodys} records name no server whose metrics they could be part of: they are left out of the metrics.")
    return groups


def server_of_record(record: Mapping[str, Any], topology: Topology) -> str | None:
    """The environment server whose metrics a record belongs to: the stamped one, else the only one of its agent.

    Raises RoutingError for a stamp that the config doesn't have.
    """
    stamp = record.get(NG_ENVIRONMENT_SERVER_KEY)
    if isinstance(stamp, str) and stamp:
        if stamp not in topology:
            raise RoutingError(
                f"Records name the environment server `{stamp}`, which the running config does not have: start the "
                "servers these records were made with."
            )
        return stamp
    agent = agent_of(record)
    servers = topology.environment_servers_by_agent.get(agent, []) if agent else []
    return servers[0] if len(servers) == 1 else None


def _metric_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in record.items() if key not in _DROPPED}
    response = record.get(RESPONSE_KEY_NAME)
    if isinstance(response, Mapping):
        kept = {name: response[name] for name in _KEPT_OF_RESPONSE if response.get(name) is not None}
        if kept:
            fields[RESPONSE_KEY_NAME] = kept
    return fields


async def _ask(
    server: str,
    label: str,
    group: _Group,
    client: RolloutClient,
    raise_for_status: Callable[[Any], Awaitable[None]],
) -> dict[str, Any]:
    try:
        response = await client.post(server_name=server, url_path="/aggregate_metrics", **group.body())
        await raise_for_status(response)
        metrics = orjson.loads(await response.read())
    except Exception as error:
        if not is_request_failure(error):
            raise
        raise AggregationError(
            f"The metrics of `{label}` could not be computed ({describe(failure_row(error))}). The rollouts are saved; "
            "compute their metrics by `gym eval aggregate` once the servers run again."
        ) from error
    entry = {AGENT_REF_KEY_NAME: {"name": label}, NG_ENVIRONMENT_SERVER_KEY: server}
    entry |= {name: metrics.get(name) for name in _FIELDS}
    return entry | {name: metrics[name] for name in _OPTIONAL if metrics.get(name) is not None}


def _print_key_metrics(entry: Mapping[str, Any]) -> None:
    label = entry[AGENT_REF_KEY_NAME]["name"]
    print(f"\nKey metrics for {label}:\n{json.dumps(entry['key_metrics'], indent=4)}")


def _write(output: Path, entries: list[dict[str, Any]]) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
        temporary.replace(output)
    except OSError as error:
        raise OutputError(f"{output} can't be written ({error.strerror}); the rollouts are saved.") from error
    finally:
        temporary.unlink(missing_ok=True)
