"""Records of rollouts, healthy unless a test changes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

POLICY = {"type": "responses_api_models", "name": "policy_model"}
ANSWER = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}]


def call(id: str = "c1", **changes: Any) -> dict[str, Any]:
    """A model call; keys of its metadata and tokens are given flat."""
    metadata = {"model_ref": POLICY, "response_id": f"r-{id}", "status_code": 200, "finish_reason": "completed"}
    tokens = {"prompt_tokens": 10, "completion_tokens": 5}
    top = {"model_call_id": id, "started_at": 1.0, "response": {"output": ANSWER}}
    for key, value in changes.items():
        place = top if key in top else tokens if key in tokens else metadata
        place[key] = value
    return {**top, "response_metadata": metadata, "token_stats": tokens}


def turn(number: int = 1, answer: Any = ANSWER, calls: Iterable[str] = ("c1",), **changes: Any) -> dict[str, Any]:
    return {
        "invocation_id": "root",
        "task_id": "t",
        "rollout_id": "t-r",
        "turn_no": number,
        "timestamp": 1.0,
        "step_count": 0,
        "answer": answer,
        "model_calls": [{"model_call_id": id} for id in calls],
        **changes,
    }


def trajectory(**changes: Any) -> dict[str, Any]:
    root = {"invocation_id": "root", "status": "completed", "model_calls": [{"model_call_id": "c1"}]}
    fields = {"invocations": [root], "turns": [turn()], "model_calls": [call()], "gaps": []}
    return {"task_id": "t", "rollout_id": "t-r", **fields, **changes}


def record(task: Any = 0, rollout: Any = 0, path: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    fields = {"reward": 1.0, "response": {"usage": usage}, "ng_trajectory": path or trajectory()}
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields, **changes}


def gaps(*codes: str) -> list[dict[str, Any]]:
    return [{"code": code} for code in codes]


def write(path: Path, records: Iterable[Any]) -> Path:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
