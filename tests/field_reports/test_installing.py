"""Reports on the first minute after installing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SURFACE = ROOT / "tests" / "contract" / "surface.jsonl"
PROGRAM = """
import importlib, json, sys

names, absent = json.loads(sys.argv[1])
opened = []

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def note(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/proc/"):
        frame = sys._getframe(1)
        if "/nemo_gym/" in frame.f_code.co_filename or "pathlib" in frame.f_code.co_filename:
            opened.append(str(arguments[0]))

sys.meta_path.insert(0, Absent())
sys.addaudithook(note)
failed = {}
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = str(error)
print(json.dumps([failed, opened]))
"""


def brought_along() -> set[str]:
    """The distributions that installing the package brings, none of its extras named."""
    waiting, found = [Requirement("nemo-gym")], set[tuple[str, str]]()
    while waiting:
        wanted = waiting.pop()
        for extra in ["", *wanted.extras]:
            if (key := (canonicalize_name(wanted.name), extra)) in found:
                continue
            found.add(key)
            try:
                lines = metadata.requires(wanted.name) or []
            except metadata.PackageNotFoundError:
                continue
            waiting += [
                each
                for each in map(Requirement, lines)
                if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in found}


def test_all_that_may_be_imported_needs_only_what_was_installed_with_it() -> None:
    """B29: no extra, and nothing that only Linux has."""
    names = sorted({json.loads(line)["module"] for line in SURFACE.read_text().splitlines()})
    brought = brought_along()
    absent = [
        top
        for top, owners in metadata.packages_distributions().items()
        if brought.isdisjoint(map(canonicalize_name, owners))
    ]
    assert {"mcp", "anthropic", "pytest"} <= set(absent) and "pydantic" not in absent
    command = [sys.executable, "-c", PROGRAM, json.dumps([names, absent])]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(ended.stdout) == [{}, []]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/quickstart.md", "docs/container.md"])
def test_no_page_begins_with_a_clone_that_needs_a_key(page: str) -> None:
    """B29: sources are fetched over HTTPS."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.search(r"git@|ssh://|git\+ssh", text)


def test_the_oldest_python_is_said_to_whoever_installs() -> None:
    """B29: an interpreter that is too old is refused by the installer, and the README says which will do."""
    assert metadata.metadata("nemo-gym")["Requires-Python"] == ">=3.11"
    assert "Python 3.11 or newer" in (ROOT / "README.md").read_text(encoding="utf-8")
