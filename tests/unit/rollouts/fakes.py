"""Servers that answer at once, in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from omegaconf import DictConfig, OmegaConf
from yarl import URL

from nemo_gym.rollout_collection import EvalRunConfig, RolloutCollectionConfig, RolloutCollectionHelper

Row = dict[str, Any]


class FakeReply:
    """What `ServerClient.post` returns."""

    def __init__(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.ok = status < 400
        self.headers = CIMultiDictProxy(CIMultiDict(headers or {}))
        self._content = body if isinstance(body, bytes) else orjson.dumps(body)

    async def read(self) -> bytes:
        return self._content

    def raise_for_status(self) -> None:
        info = aiohttp.RequestInfo(URL("http://127.0.0.1:1/run"), "POST", self.headers, URL("http://127.0.0.1:1/run"))
        raise aiohttp.ClientResponseError(info, (), status=self.status, message="failed", headers=self.headers)


Handler = Callable[[Row], Any | Awaitable[Any]]


class FakeClient:
    """A `ServerClient` whose environment servers are functions of the row; keeps every call."""

    def __init__(self, config: DictConfig, run: Handler) -> None:
        self.global_config_dict = config
        self.posts: list[tuple[str, str, Any]] = []
        self.aggregated: list[tuple[str, list[Row]]] = []
        self.in_flight = self.most_in_flight = self.streamed = 0
        self.metrics: Any = None
        self.status_of: Callable[[str], str] = lambda name: "success"
        self._run = run

    @property
    def runs(self) -> list[Row]:
        return [body for _, path, body in self.posts if path == "/run"]

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> FakeReply:
        body = kwargs["json"] if "json" in kwargs else json.loads(kwargs["data"].read())
        self.posts.append((server_name, url_path, body))
        self.streamed += "data" in kwargs
        if url_path == "/aggregate_metrics":
            return self._aggregate(server_name, body["verify_responses"])
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answer = self._run(body)
            if asyncio.iscoroutine(answer) or isinstance(answer, asyncio.Future):
                answer = await answer
            return answer if isinstance(answer, FakeReply) else FakeReply(answer)
        finally:
            self.in_flight -= 1

    def poll_for_status(self, server_name: str) -> str:
        return self.status_of(server_name)

    def _aggregate(self, server: str, records: list[Row]) -> FakeReply:
        self.aggregated.append((server, records))
        if self.metrics is not None:
            return self.metrics if isinstance(self.metrics, FakeReply) else FakeReply(self.metrics)
        rewards = [record["reward"] for record in records]
        mean = sum(rewards) / len(rewards)
        return FakeReply(
            {
                "agent_metrics": {"mean/reward": mean},
                "key_metrics": {"mean/reward": mean},
                "group_level_metrics": [],
                "repeat_level_metrics": [],
                "perf_summary": None,
            }
        )


def agent(resources_server: str = "math", **block: Any) -> Row:
    fields = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": resources_server},
        **block,
    }
    return {"responses_api_agents": {"simple_agent": fields}}


def relay(agent_name: str) -> Row:
    reference = {"type": "responses_api_agents", "name": agent_name}
    return {"environment_servers": {"legacy_agent": {"entrypoint": "app.py", "agent_server": reference}}}


def served(**entries: Any) -> DictConfig:
    """A config of one resources server and one agent with its relay, and whatever is added."""
    config = {
        "head_server": {"host": "127.0.0.1", "port": 11000},
        "math": {"resources_servers": {"math": {"entrypoint": "app.py", "domain": "math"}}},
        "math_agent": agent(),
        "math_environment_server": relay("math_agent"),
        **entries,
    }
    return OmegaConf.create(config)


def task(question: str, **fields: Any) -> Row:
    return {"responses_create_params": {"input": question}, **fields}


def right(row: Row) -> Row:
    """What a resources server returns for an answer that is right."""
    return {"responses_create_params": row["responses_create_params"], "response": {"output": []}, "reward": 1.0}


def write_jsonl(path: Path, rows: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def collection_config(tmp_path: Path, rows: Iterable[Row], **fields: Any) -> RolloutCollectionConfig:
    """A collection of these rows; of those that are there already where none are given."""
    source, given = tmp_path / "input.jsonl", list(rows)
    if given or not source.exists():
        write_jsonl(source, given)
    values = {"input_jsonl_fpath": str(source), "output_jsonl_fpath": str(tmp_path / "out.jsonl"), **fields}
    return RolloutCollectionConfig.model_validate(values)


class Helper(RolloutCollectionHelper):
    """The helper with a fake client behind it."""

    def __init__(self, client: FakeClient) -> None:
        super().__init__()
        object.__setattr__(self, "fake", client)

    def setup_server_client(self, head_server_config: Any = None) -> Any:
        return object.__getattribute__(self, "fake")


async def collect(
    config: RolloutCollectionConfig, run: Handler = right, served_config: DictConfig | None = None
) -> FakeClient:
    """Run a collection against fake servers; returns the client, to look at its calls."""
    client = FakeClient(served() if served_config is None else served_config, run)
    await Helper(client).run_from_config(config)
    return client


__all__ = ["EvalRunConfig", "FakeClient", "FakeReply", "Helper", "agent", "collect", "collection_config", "relay"]
