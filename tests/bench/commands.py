"""`cli` and `import`: what it costs to ask the command line something, and to load each role."""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.machine import quiet_environment
from tests.bench.processes import Usage, run
from tests.bench.report import Figure, median

GYM = [sys.executable, "-c", "from nemo_gym.cli.main import main; main()"]
BARE = [sys.executable, "-c", "pass"]

COMMANDS = {
    "gym --help": (["--help"], "< 0.15 s"),
    "gym --version": (["--version"], "< 0.15 s"),
    "gym env status": (["env", "status"], "< 0.5 s"),
}

ROLES = {
    "nemo_gym": "nemo_gym",
    "launcher": "nemo_gym.cli.run_helper",
    "resources server": "nemo_gym.base_resources_server",
    "agent": "nemo_gym.base_responses_api_agent",
    "model server": "nemo_gym.base_responses_api_model",
    "collector": "nemo_gym.rollout_collection",
}


def alternate(commands: list[list[str]], times: int, cwd: Path) -> list[list[Usage]]:
    """Each command `times` times in turn (A B A B …), after one warm-up of each."""
    for command in commands:
        run(command, cwd=cwd)
    rounds = [[run(command, cwd=cwd) for command in commands] for _ in range(times)]
    return [list(column) for column in zip(*rounds, strict=True)]


def cli(root: Path, *, quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    for name, (arguments, budget) in COMMANDS.items():
        ours, floor = alternate([[*GYM, *arguments], BARE], 3 if quick else 9, root)
        figures += [
            Figure(
                "cli", f"{name}, wall", median([u.wall for u in ours]), "s", median([u.wall for u in floor]), budget
            ),
            Figure("cli", f"{name}, CPU", median([u.cpu for u in ours]), "s", median([u.cpu for u in floor])),
        ]
    return figures


def imports(root: Path, *, quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    for role, module in ROLES.items():
        ours, floor = alternate([[sys.executable, "-c", f"import {module}"], BARE], 3 if quick else 7, root)
        figures.append(
            Figure("import", f"{role}, CPU", median([u.cpu for u in ours]), "s", median([u.cpu for u in floor]))
        )
        figures.append(
            Figure("import", f"{role}, resident memory", _resident(module, root), "MB", _resident("sys", root))
        )
    return figures


def heaviest_imports(module: str, root: Path, count: int = 12) -> list[tuple[str, float]]:
    """The libraries whose own import takes longest, in milliseconds (`-X importtime`, self time by top-level name)."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        cwd=root,
        env=quiet_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    totals: dict[str, float] = {}
    for line in done.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[0].strip().isdigit():
            library = parts[2].strip().split(".")[0]
            totals[library] = totals.get(library, 0.0) + int(parts[0]) / 1000
    return sorted(totals.items(), key=lambda item: -item[1])[:count]


def _resident(module: str, root: Path) -> float:
    code = f"import {module}, json, psutil; print(json.dumps(psutil.Process().memory_info().rss))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=quiet_environment(), capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout)) / 2**20
