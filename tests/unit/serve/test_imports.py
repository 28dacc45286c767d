"""What importing costs, and what a preloaded process holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ["pandas", "scipy", "openai", "ray", "mcp", "numpy", "anthropic", "wandb", "mlflow", "requests", "datasets"]

FRONT_DOORS = [
    "server_utils",
    "base_resources_server",
    "base_responses_api_agent",
    "base_responses_api_model",
    "judge",
    "rollout_correlation",
    "profiling",
    "telemetry",
    "mcp_auto_exposure",
]


def run(program: str) -> Any:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("module", FRONT_DOORS)
def test_front_doors_bring_no_heavy_library(module: str) -> None:
    loaded = run(f"import json, sys, nemo_gym.{module}; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))")
    assert loaded == []


def test_the_head_server_needs_no_client_library() -> None:
    loaded = "[m for m in ('aiohttp', 'fastapi') if m in sys.modules]"
    assert run(f"import json, sys, nemo_gym.serve.head; print(json.dumps({loaded}))") == []


PRELOAD = f"""
import json, os, sys, threading, asyncio
before = set(os.listdir("/proc/self/fd"))
import nemo_gym.serve
nemo_gym.serve.preload()
from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.openai_utils import NeMoGymResponse
print(json.dumps({{
    "threads": threading.active_count(),
    "tasks": len(os.listdir("/proc/self/task")),
    "descriptors": len(set(os.listdir("/proc/self/fd")) - before),
    "loop": asyncio._get_running_loop() is not None,
    "heavy": [m for m in {HEAVY} if m in sys.modules],
    "complete": [model.__pydantic_complete__ for model in (BaseVerifyResponse, NeMoGymResponse)],
    "hot": [m for m in ("uvicorn.protocols.http.httptools_impl", "uvloop", "nemo_gym.judge") if m in sys.modules],
}}))
"""


def test_preloading_leaves_a_process_that_can_be_forked() -> None:
    found = run(PRELOAD)
    assert found == {
        "threads": 1,
        "tasks": 1,
        "descriptors": 0,
        "loop": False,
        "heavy": [],
        "complete": [True, True],
        "hot": ["uvicorn.protocols.http.httptools_impl", "uvloop", "nemo_gym.judge"],
    }


LATE = """
import json
from pydantic import BaseModel
from nemo_gym.serve.warm_up import complete_types

class Early(BaseModel):
    late: "Late"

class Late(BaseModel):
    x: int

class Never(BaseModel):
    unknown: "Unknown"

before = Early.__pydantic_complete__
complete_types()
print(json.dumps([before, Early.__pydantic_complete__, Never.__pydantic_complete__]))
"""


def test_types_are_completed_where_they_can_be() -> None:
    assert run(LATE) == [False, True, False]


def test_every_public_name_exists() -> None:
    names = ", ".join(f"nemo_gym.{module}" for module in FRONT_DOORS)
    program = f"""
import json, {names}
modules = [{names}]
print(json.dumps([f"{{m.__name__}}.{{n}}" for m in modules for n in m.__all__ if not hasattr(m, n)]))
"""
    assert run(program) == []
