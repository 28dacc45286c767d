"""What the fork server learns about itself while it imports, each time in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import gc, json, sys, types

serve = types.ModuleType("nemo_gym.serve")
{definition}
import nemo_gym
sys.modules["nemo_gym.serve"] = serve
from nemo_gym.launch.preload import PreloadFacts, preload

facts = preload("nemo_gym.serve")
body = facts.as_body()
assert PreloadFacts.from_body(json.loads(json.dumps(body))) == facts
print(json.dumps(dict(body, collecting=gc.isenabled(), frozen=gc.get_freeze_count())))
"""


def preload_with(definition: str) -> dict[str, Any]:
    code = PROGRAM.format(definition=definition)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def as_preload(*lines: str) -> str:
    body = "\n    ".join(lines)
    return f"def preload():\n    {body}\nserve.preload = preload"


def test_what_was_imported_is_known_and_frozen() -> None:
    facts = preload_with(as_preload("import decimal"))
    assert facts["problem"] is None
    assert {"decimal", "nemo_gym"} <= set(facts["loaded"])
    assert facts["frozen"] > 0
    assert not facts["collecting"], "a collection would unshare the memory of forks"


def test_what_was_looked_for_in_vain_is_known() -> None:
    facts = preload_with(
        as_preload(
            "import importlib.util",
            "try:",
            "    import surely_missing.inner",
            "except ImportError:",
            "    pass",
            "importlib.util.find_spec('also_missing')",
        )
    )
    assert {"surely_missing", "also_missing"} <= set(facts["missed"])
    assert not {"decimal", "json"} & set(facts["missed"])


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            ["import threading, time", "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"],
            "preloading started a thread",
        ),
        (["raise ImportError('no module')"], "preloading failed (ImportError: no module)"),
    ],
)
def test_what_forbids_every_fork(lines: list[str], problem: str) -> None:
    assert preload_with(as_preload(*lines))["problem"] == problem


def test_a_serve_room_without_preload_is_fine() -> None:
    assert preload_with("")["problem"] is None


def test_what_servers_really_need_can_be_forked() -> None:
    code = "import json; from nemo_gym.launch.preload import preload\n"
    code += "print(json.dumps(preload('nemo_gym.serve').as_body()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["problem"] is None
    assert not {"ray", "numpy", "grpc", "hydra"} & set(facts["loaded"])
