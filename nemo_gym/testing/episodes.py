"""Playing with a gymnasium server in a test: over HTTP, as its agent does, with the model's replies given."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

from nemo_gym.testing.responses import response, verify_request
from nemo_gym.testing.verdicts import new_server, rows_of

S = TypeVar("S", bound=BaseModel)
Turn = str | dict[str, Any] | tuple[str | dict[str, Any], ...]
"""What a model says at once: a text, an output item, or several of either."""


@dataclass
class Player:
    """A session at `app`. `status` is that of the last request, `rewards` are those of all steps so far."""

    app: FastAPI
    row: dict[str, Any] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    status: int = 200

    def __post_init__(self) -> None:
        self._client = TestClient(self.app)
        self.row = {key: value for key, value in verify_request(self.row).items() if key != "response"}

    def reset(self) -> dict[str, Any]:
        return self.post("/reset", self.row)

    def step(self, *items: str | dict[str, Any]) -> dict[str, Any]:
        """The answer to one reply of the model."""
        answer = self.post("/step", {**self.row, "response": response(*items)})
        self.rewards.append(answer.get("reward", 0.0))
        return answer

    def play(self, turns: Sequence[Turn]) -> dict[str, Any]:
        """The answer to the last reply that the episode wanted."""
        self.reset()
        answer: dict[str, Any] = {}
        for turn in turns:
            answer = self.step(*(turn if isinstance(turn, tuple) else (turn,)))
            if self.status != 200 or answer["terminated"] or answer["truncated"]:
                break
        return answer

    def post(self, path: str, body: Any) -> dict[str, Any]:
        answer = self._client.post(path, json=body)
        self.status = answer.status_code
        found: dict[str, Any] = answer.json()
        return found


@dataclass(frozen=True)
class Episode:
    """A row, what the model says, and what comes of it: the sum of the rewards, and the end of the last step's `info`
    and answer. `settings` are the server's."""

    name: str
    row: dict[str, Any]
    turns: Sequence[Turn]
    reward: float
    info: dict[str, Any] = field(default_factory=dict)
    terminated: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def player(kind: type[S], row: dict[str, Any] | None = None, **settings: Any) -> Player:
    """A session at a server of its own."""
    server: Any = new_server(kind, **settings)
    return Player(server.setup_webserver(), row or {})


def check_episode(kind: type[S], episode: Episode) -> dict[str, Any]:
    """The last answer of an episode, which must go as it says; no step may fail."""
    played = player(kind, episode.row, **episode.settings)
    answer = played.play(episode.turns)
    assert played.status == 200, f"{episode.name}: {played.status} {answer}"
    found = {name: answer["info"].get(name) for name in episode.info}
    total = round(_added_up(played.rewards), 9)
    gone = (total, answer["terminated"], found)
    assert gone == (episode.reward, episode.terminated, episode.info), f"{episode.name}: {gone}"
    return answer


def check_recorded_episodes(kind: type[S], folder: Path, *, rewards: Sequence[float]) -> None:
    """The recorded rollouts of `example.jsonl`: one a row, in order, and played again they end as they did."""
    rows, records = (rows_of(folder / "data" / f"example{end}.jsonl") for end in ("", "_rollouts"))
    assert [record["_ng_task_index"] for record in records] == list(range(len(rows)))
    assert [round(record["reward"], 9) for record in records] == list(rewards)
    for row, record in zip(rows, records, strict=True):
        played = player(kind, row)
        answer = played.play(turns_of(record))
        assert (played.status, _added_up(played.rewards)) == (200, record["reward"])
        assert {key: value for key, value in answer["info"].items() if key != "tool_outputs"} == {
            key: value for key, value in record["info"].items() if key != "tool_outputs"
        }


def _added_up(rewards: Iterable[float]) -> float:
    """One after the other, as an agent does; `sum` rounds less from Python 3.12 on."""
    return reduce(operator.add, rewards, 0.0)


def turns_of(record: dict[str, Any]) -> list[Turn]:
    """What the model said in a rollout, one entry a reply."""
    turns: list[list[dict[str, Any]]] = [[]]
    for item in record["response"]["output"]:
        is_environment = item["type"] == "function_call_output" or item.get("role") == "user"
        if not is_environment:
            turns[-1].append(item)
        elif turns[-1]:
            turns.append([])
    return [tuple(turn) for turn in turns if turn]
