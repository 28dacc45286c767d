"""Configs that declare data sets, in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

Row = dict[str, Any]


def dataset(kind: str = "train", path: str | None = None, **fields: Any) -> Row:
    license_ = {"license": "MIT"} if kind in ("train", "validation") else {}
    return {"name": kind, "type": kind, "jsonl_fpath": path or f"data/{kind}.jsonl", **license_, **fields}


def benchmark(**fields: Any) -> Row:
    return dataset("benchmark", prepare_script="prepare.py", **fields)


def config(*datasets: Row, **entries: Any) -> DictConfig:
    """A resources server with these data sets and an agent bound to it."""
    resources = {"entrypoint": "app.py", "domain": "math", "datasets": list(datasets)}
    bound = {"entrypoint": "app.py", "resources_server": {"type": "resources_servers", "name": "math"}}
    return OmegaConf.create(
        {
            "math": {"resources_servers": {"math_kind": resources}},
            "math_agent": {"responses_api_agents": {"simple_agent": bound}},
            **entries,
        }
    )


def row(text: str = "q", **fields: Any) -> Row:
    return {"responses_create_params": {"input": [{"role": "user", "content": text}]}, **fields}


def write_jsonl(path: Path, rows: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def read_jsonl(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]
