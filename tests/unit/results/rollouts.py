"""Small rows and rollouts for the tests of results."""

from __future__ import annotations

from typing import Any


def row(task: int, rollout: int, agent: str | None = "solver", **fields: Any) -> dict[str, Any]:
    reference = {} if agent is None else {"agent_ref": {"name": agent}}
    return {"question": f"q{task}", **reference, **fields, "_ng_task_index": task, "_ng_rollout_index": rollout}


def result(task: int, rollout: int, reward: object = 0.0, **fields: Any) -> dict[str, Any]:
    return {"reward": reward, **fields, "_ng_task_index": task, "_ng_rollout_index": rollout}
