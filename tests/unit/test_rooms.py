"""Imports between rooms point one way: docs/architecture.md's table, enforced."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "nemo_gym"

# room -> rooms it may import besides itself, `errors` and those marked importable by all.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "schema": set(),
    "telemetry": set(),
    "config": set(),
    "capture": {"config"},
    "token_id_capture": {"config", "capture"},
    "serve": {"config", "capture", "token_id_capture"},
    "launch": {"config", "serve"},
    "verifiers": {"config", "sandbox", "results"},
    "sandbox": {"config"},
    "datasets": {"config"},
    "results": {"config"},
    "comparison": {"config", "results"},
    "health": {"config", "results"},
    "exporters": {"config", "results"},
    "rollouts": {"config", "serve", "capture", "token_id_capture", "datasets", "results"},
    "rescore": {"config", "launch", "rollouts", "results"},
    "orchestration": {"config", "rollouts"},
    "environment": {"config", "launch", "datasets", "results"},
    "view": {"results"},
    "testing": {"config", "serve"},
    "audit": {"config", "serve", "testing"},
    "onefile": {"config", "serve", "testing", "verifiers", "audit", "environment"},
}
EVERYWHERE = {"errors", "schema", "telemetry", "package_info"}
# Modules whose path is the contract's although they are of the front door, which may import everything.
FRONT_DOORS_IN_ROOMS = {"environment/_verifier_runner.py", "sandbox/agent_tools.py"}


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "nemo_gym" and len(parts) > 1 else None


def imported_rooms(path: Path) -> set[str]:
    """The second part of every absolute `nemo_gym.…` import of a file, however deep in the code it stands."""
    package = ["nemo_gym", *path.relative_to(PACKAGE).parts[:-1]]
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{stem}.{alias.name}" for alias in node.names] if stem == "nemo_gym" else [stem]
        else:
            continue
        rooms |= {room for name in names if (room := room_of(name))}
        rooms |= {"nemo_gym" for name in names if name == "nemo_gym"}
    return rooms


def room_files() -> list[Path]:
    return sorted(
        path
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE
        and path.relative_to(PACKAGE).parts[0] != "cli"
        and path.relative_to(PACKAGE).as_posix() not in FRONT_DOORS_IN_ROOMS
    )


@pytest.mark.parametrize("path", room_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_the_rooms_it_may(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    assert room in ALLOWED, f"{room} is not in the table of rooms"
    assert imported_rooms(path) - {room} - EVERYWHERE <= ALLOWED[room]


def test_the_reader_of_imports_sees_each_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "serve").mkdir()
    probe = tmp_path / "serve" / "probe.py"
    probe.write_text(
        "import nemo_gym.config.roots\nfrom nemo_gym import errors\nfrom ..launch import plan\n"
        "def late() -> None:\n    from nemo_gym.server_utils import request\n"
    )
    assert imported_rooms(probe) == {"config", "errors", "launch", "server_utils"}


def table_of_rooms() -> dict[str, set[str]]:
    """The rooms of docs/architecture.md, each with those it may import."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {
        room.rstrip("/"): {
            word for word in re.sub(r"\(.*?\)", "", row[2]).replace(",", " ").split() if word != "nothing"
        }
        for row in rows
        if len(row) == 3
        for room in re.findall(r"`([^`]+)`", row[0])
    }


def test_the_documented_table_is_the_enforced_one() -> None:
    told = table_of_rooms()
    assert told.pop("cli") == {"every", "room"}
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")} - {"cli"}
    assert folders | {"errors"} == set(told)
    assert told == {room: ALLOWED[room] for room in told}
