"""Standard output that is closed, full or broken: an exit code, never a traceback, and the work done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.cli import streams

GYM = "from nemo_gym.cli.main import main; main()"
WORKS = """
import sys
from pathlib import Path
from nemo_gym.cli import commands, main
def work(args, overrides):
    for number in range(20_000):  # more than a pipe holds
        print("a line of output", number)
    print("a notice", file=sys.stderr)
    Path("result").write_text("whole")
    raise SystemExit({code})
only_prints = {only_prints}
commands.COMMANDS["dev test"] = main.COMMANDS["dev test"] = commands.Command(work, "work", only_prints=only_prints)
sys.argv = ["gym", "dev", "test"]
main.main()
"""


def shell(folder: Path, program: str, redirection: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """A program under a shell's redirection of its streams."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "XDG_RUNTIME_DIR": str(folder)}
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -c "$@" {redirection}', sys.executable, program, *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


FULL = "Error: standard output can't be written: No space left on device.\n"
CLOSED = "Error: standard output can't be written: Bad file descriptor.\n"


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [(">&-", 1, CLOSED), (">/dev/full", 1, FULL), ("2>&-", 0, ""), ("2>/dev/full", 0, "")],
)
@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["env", "status", "--json"]])
def test_what_nobody_takes_is_told_in_the_exit_code(
    tmp_path: Path, redirection: str, code: int, said: str, argv: list[str]
) -> None:
    ended = shell(tmp_path, GYM, redirection, *argv)
    assert ended.returncode == code and ended.stderr.endswith(said) and "Traceback" not in ended.stderr
    assert bool(ended.stdout) is (code == 0)


@pytest.mark.parametrize(
    ("redirection", "code"),
    [("", 0), (">/dev/full", 1), (">&-", 1), ("| head -n 1", 141), ("2>&-", 0), (">&- 2>&-", 1)],
)
def test_work_is_done_whoever_reads_of_it(tmp_path: Path, redirection: str, code: int) -> None:
    ended = shell(tmp_path, WORKS.format(code=0, only_prints=False), redirection)
    assert (ended.returncode, (tmp_path / "result").read_text()) == (code, "whole")
    assert "Traceback" not in ended.stderr and ended.stderr.count("Error") <= 1
    assert ("a notice" in ended.stderr) is ("2>" not in redirection)


def test_an_exit_code_of_its_own_is_kept(tmp_path: Path) -> None:
    assert shell(tmp_path, WORKS.format(code=75, only_prints=False), ">/dev/full").returncode == 75


@pytest.mark.parametrize(("redirection", "code"), [("| head -n 1", 141), (">/dev/full", 1)])
def test_what_only_prints_ends_when_nobody_reads(tmp_path: Path, redirection: str, code: int) -> None:
    ended = shell(tmp_path, WORKS.format(code=0, only_prints=True), redirection)
    assert ended.returncode == code and "Traceback" not in ended.stderr
    assert not (tmp_path / "result").exists()


def test_a_closed_descriptor_is_not_given_to_a_file(tmp_path: Path) -> None:
    """Else a result file would get the number of standard output, and what is printed."""
    program = (
        "from nemo_gym.cli.streams import dependable\n"
        "with dependable(), open('result', 'w') as file:\n"
        "    print('chatter', flush=True)\n"
        "    file.write(str(file.fileno() > 2))\n"
    )
    assert shell(tmp_path, program, "<&- >&- 2>&-").returncode == 0
    assert (tmp_path / "result").read_text() == "True"


def test_streams_of_somebody_else_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stdout
    with streams.dependable() as out:
        assert out is None and sys.stdout is before


def test_after_a_loss_nothing_more_is_written(tmp_path: Path) -> None:
    """What comes later would stand there without what belongs before it."""
    number = os.open("/dev/full", os.O_WRONLY)
    with (tmp_path / "out").open("wb") as file:
        stream = streams.Stream(number)
        assert stream.write(b"first") == 5
        os.dup2(file.fileno(), number)
        assert stream.write(b"then") == 4
    os.close(number)
    assert (tmp_path / "out").read_bytes() == b"" and stream.lost is not None
