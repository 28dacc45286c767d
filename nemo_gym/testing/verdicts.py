"""What the tests of a resources server share: making it, verifying with it, its table of cases and its example data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from unittest.mock import MagicMock

from pydantic import BaseModel

from nemo_gym.config.task_data import load_task_data_schema, normalize_task_fields

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Case:
    """A verify request, the reward it must get from a server with `settings`, and `own` fields of the verdict."""

    name: str
    request: dict[str, Any]
    reward: float
    own: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def new_server(kind: type[S], *, client: Any = None, **settings: Any) -> S:
    """A server of this class with a config of its own; without a `client` it has a mock of one."""
    config: Any = kind.model_fields["config"].annotation
    address = {"name": kind.__module__.split(".")[-2], "host": "127.0.0.1", "port": 1, "entrypoint": "app.py"}
    mock = MagicMock(spec=kind.model_fields["server_client"].annotation)
    if client is not None:
        mock.post.side_effect = client.post
    return kind(config=config.model_validate({**address, **settings}), server_client=mock)


async def verified(server: Any, request: dict[str, Any]) -> Any:
    """The verdict on a request, as the model that `verify` takes as `body`; 422 over HTTP is a ValidationError here."""
    model: type[BaseModel] = get_type_hints(type(server).verify)["body"]
    answer = server.verify(model.model_validate(request))
    return await answer if inspect.isawaitable(answer) else answer


async def check_case(server: Any, case: Case) -> Any:
    """The verdict on a case, which must be as it says; the rollout must be measured unless `own` says otherwise."""
    verdict = await verified(server, case.request)
    expected = {"reward": case.reward, "mask_sample": False, **case.own}
    found = {name: getattr(verdict, name) for name in expected}
    assert found == expected, f"{case.name}: {found} is not {expected}"
    return verdict


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def check_example_rows(folder: Path, *, prefix: str = "", count: int = 5) -> list[dict[str, Any]]:
    """The example rows of a component: so many, all different, and their fields are what its `TaskData` takes."""
    rows = rows_of(folder / "data" / f"{prefix}example.jsonl")
    assert len({json.dumps(row, sort_keys=True) for row in rows}) == len(rows) == count
    schema = load_task_data_schema(folder)
    assert schema is not None, f"{folder} has no task_data.py"
    for row in rows:
        fields, conflicts = normalize_task_fields(row)
        assert not conflicts
        schema.validate_python(fields)
    return rows


async def check_example_rollouts(
    server: Any, folder: Path, *, own: Sequence[str] = (), prefix: str = "", rewards: Sequence[float] | None = None
) -> None:
    """The recorded rollouts of `<prefix>example.jsonl`: one a row, in order, and judged again as they were.

    `own` names more fields of the verdict to hold against the record. There must be a good and a bad one, or exactly
    `rewards`.
    """
    rows = rows_of(folder / "data" / f"{prefix}example.jsonl")
    records = rows_of(folder / "data" / f"{prefix}example_rollouts.jsonl")
    assert [record["_ng_task_index"] for record in records] == list(range(len(rows)))
    recorded = [record["reward"] for record in records]
    assert recorded == list(rewards) if rewards is not None else len(set(recorded)) > 1
    for row, record in zip(rows, records, strict=True):
        verdict = await verified(server, {**row, "response": record["response"]})
        again = verdict.model_dump(mode="json")
        names = ("reward", *own)
        assert {name: again.get(name) for name in names} == {name: record.get(name) for name in names}
