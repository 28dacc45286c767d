"""The guide to verifiers does what it says: its fences marked `run` are run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.sandbox.providers.namespaces.availability import isolation

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "verifiers.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```python run\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", FENCES, ids=range(len(FENCES)))
def test_a_snippet_runs(code: str) -> None:
    if isolation().refusal and ("CodeRunner" in code or "namespaces" in code):
        pytest.skip(isolation().refusal)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_snippets_and_every_module_is_named() -> None:
    assert len(FENCES) >= 5
    modules = {path.stem for path in (ROOT / "nemo_gym" / "verifiers").glob("*.py")}
    inner = {"__init__", "pattern_worker", "worker_process", "case_driver", "session_driver"}
    assert {name for name in modules - inner if f"`{name}`" not in GUIDE} == set()
