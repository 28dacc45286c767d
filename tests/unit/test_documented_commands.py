"""Every `gym` line in a code fence of the documentation is one the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from nemo_gym.cli.command_line import cut, parse
from nemo_gym.cli.commands import COMMANDS
from nemo_gym.cli.parsers import build_parsers
from nemo_gym.config.overrides import parse_overrides

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?:bash|sh|shell)\b[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED_FILE = re.compile(r"^```python file=(\S+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:uv run )?gym (?:env|eval|dataset|dev) [^`]*)`")


def commands(text: str) -> list[list[str]]:
    """The words after `gym` of each such line, continuation lines joined and comments dropped."""
    lines = [line for fence in FENCE.findall(text) for line in fence.replace("\\\n", " ").splitlines()]
    words = [shlex.split(line, comments=True) for line in [*lines, *INLINE.findall(text)]]
    words = [line[2:] if line[:2] == ["uv", "run"] else line for line in words]
    return [line[1:] for line in words if line[:1] == ["gym"]]


def is_whole(line: list[str]) -> bool:
    """Not an abbreviation such as `gym env start|stop` or `gym env start …`."""
    return not any(mark in word for word in line for mark in ("|", "…"))


NAMED_FILES = [file for page in PAGES for file in NAMED_FILE.findall(page.read_text(encoding="utf-8"))]
CASES = [(page.name, line) for page in PAGES for line in commands(page.read_text(encoding="utf-8")) if is_whole(line)]


@pytest.mark.parametrize(
    ("page", "line"), CASES, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_documented_command_is_taken(
    page: str, line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source in NAMED_FILES:
        (tmp_path / name).write_text(source, encoding="utf-8")
    monkeypatch.setattr("nemo_gym.onefile.component.CACHE_DIR", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    request = parse(build_parsers(), cut(line))
    assert request.name in COMMANDS, page
    parse_overrides(request.overrides())


def test_commands_are_found_in_fences_and_prose() -> None:
    text = "```bash\ngym env start \\\n    --model m  # why\npip install uv\n```\nuse `gym env status`, not `gymnasium`"
    assert commands(text) == [["env", "start", "--model", "m"], ["env", "status"]]


def test_the_readme_shows_the_two_commands() -> None:
    fences = "\n".join(FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert "uv run gym eval run --resources-server mcqa --output results/mcqa.jsonl --limit 5\n" in fences
    assert "uv run pytest\n" in fences
