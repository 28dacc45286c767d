"""What a person is told when a command fails, and with which exit code it ends."""

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Self

import pytest
from pydantic import BaseModel, Field, model_validator

from nemo_gym.cli import commands
from nemo_gym.cli import main as cli
from nemo_gym.cli.commands import Command
from nemo_gym.cli.flags import LiteralFlag, TextFlag
from nemo_gym.cli.reporting import quiet_broken_pipe
from nemo_gym.config_types import BaseNeMoGymCLIConfig, ConfigError
from nemo_gym.errors import GymError, UsageError
from nemo_gym.launch.signals import StopRequested
from nemo_gym.rollouts.errors import StoppedError, TerminatedError
from tests.unit.cli.conftest import Gym


class CountConfig(BaseNeMoGymCLIConfig):
    """Count."""

    output_file: str
    limit: int = Field(default=1, ge=1)
    colour: str


class Inner(BaseModel):
    size: int


class Failing:
    """A command that raises whatever a test gives it."""

    error: BaseException = RuntimeError("a bug")

    def __call__(self, args: object, overrides: list[str]) -> None:
        raise self.error


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    command = Failing()
    flags = (
        TextFlag(names=("--output",), key="output_file", help=""),
        LiteralFlag(names=("--limit",), key="limit", help=""),
    )
    table = {**commands.COMMANDS, "dev test": Command(command, "fail", flags, example="gym dev test --output x")}
    for module in ("commands", "command_line", "parsers", "main"):
        monkeypatch.setattr(f"nemo_gym.cli.{module}.COMMANDS", table)
    return command


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("file.yaml: no key a."), 1, "Error: file.yaml: no key a.\n"),
        (GymError("two\nlines"), 1, "Error: two\nlines\n"),
        (UsageError("wrong flag."), 2, "gym dev test: error: wrong flag.\n"),
        (StoppedError("Stopped: go on with x"), 130, "Stopped: go on with x\n"),
        (TerminatedError("Stopped: go on with x"), 75, "Stopped: go on with x\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/out"), 1, "Error: /out: Permission denied.\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/out"), 1, "Error: /out: No space left on device.\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_mistake_is_one_message_with_its_exit_code(
    gym: Gym, failing: Failing, error: BaseException, code: int, text: str
) -> None:
    failing.error = error
    ended = gym("dev", "test")
    assert (ended.code, ended.err, ended.out) == (code, text, "")


def test_verbose_adds_the_traceback_before_the_message(gym: Gym, failing: Failing) -> None:
    failing.error = ConfigError("no key a.")
    ended = gym("dev", "test", "-v")
    assert ended.code == 1
    assert ended.err.startswith("Traceback") and ended.err.endswith("Error: no key a.\n")


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), OSError(errno.EBADF, "Bad file descriptor", "x"), KeyError("a")]
)
def test_a_bug_keeps_its_traceback(gym: Gym, failing: Failing, error: Exception) -> None:
    failing.error = error
    with pytest.raises(type(error)):
        gym("dev", "test")


def caught(values: dict[str, object], model: type[BaseModel] = CountConfig) -> Exception:
    try:
        model.model_validate(values)
    except Exception as error:
        return error
    raise AssertionError("nothing is wrong with these values")


def test_values_of_a_command_are_asked_for_by_their_flags(gym: Gym, failing: Failing) -> None:
    failing.error = caught({"limit": "many"})
    ended = gym("dev", "test")
    assert ended.code == 2
    assert ended.err.startswith("gym dev test: error: missing --output and +colour=. --limit: ")
    assert "'many'" in ended.err
    assert ended.err.endswith("Example: gym dev test --output x\n")


class TwoConfig(BaseNeMoGymCLIConfig):
    """Count twice."""

    limit: int = 1
    repeats: Annotated[int, Field(ge=1)] | dict[str, Annotated[int, Field(ge=1)]] = 1

    @model_validator(mode="after")
    def _refuse_both(self) -> Self:
        if self.limit > 1 and self.repeats != 1:
            raise ValueError("limit and repeats exclude each other")
        return self


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        (0, "+repeats=: input should be greater than or equal to 1 (got 0)."),
        ({"a": 0, "b": 2}, "+repeats=: input should be greater than or equal to 1 (got 0)."),
        ([7], "+repeats=: input should be a valid integer."),
    ],
)
def test_a_value_that_no_member_of_a_union_takes_is_told_once(
    gym: Gym, failing: Failing, repeats: object, said: str
) -> None:
    failing.error = caught({"repeats": repeats}, TwoConfig)
    assert gym("dev", "test").err == f"gym dev test: error: {said} Example: gym dev test --output x\n"


def test_what_is_wrong_with_the_values_together_is_told_without_the_values(gym: Gym, failing: Failing) -> None:
    failing.error = caught({"limit": 2, "repeats": 2, "policy_api_key": "sk-secret"}, TwoConfig)
    assert gym("dev", "test").err == (
        "gym dev test: error: --limit and repeats exclude each other. Example: gym dev test --output x\n"
    )


def test_any_other_validation_error_is_a_bug(gym: Gym, failing: Failing) -> None:
    failing.error = caught({}, Inner)
    with pytest.raises(type(failing.error)):
        gym("dev", "test")


def test_a_closed_reader_ends_the_command_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as ended, quiet_broken_pipe():
            closed.write("text")
    assert ended.value.code == 141


def test_search_dirs_hold_for_the_command_alone(
    gym: Gym, failing: Failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "/before")
    seen: list[str] = []

    def note(target: str, overrides: list[str]) -> None:
        seen.append(os.environ["NEMO_GYM_EXTRA_ROOTS"])

    monkeypatch.setattr(cli, "dispatch", note)
    assert gym("env", "prefetch", "--search-dir", "mine").code == 0
    assert seen == [f"{tmp_path / 'mine'}{os.pathsep}/before"]
    assert os.environ["NEMO_GYM_EXTRA_ROOTS"] == "/before"
    assert str(tmp_path / "mine") in sys.path


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        ("env start", signal.SIGINT, 0),
        ("env start", signal.SIGTERM, 0),
        ("eval run", signal.SIGINT, 130),
        ("eval run", signal.SIGTERM, 75),
        ("eval run --no-serve", signal.SIGINT, 130),
    ],
)
def test_a_signal_before_anything_is_started(
    gym: Gym, monkeypatch: pytest.MonkeyPatch, line: str, number: signal.Signals, code: int
) -> None:
    discarded: list[str] = []

    def stop() -> None:
        raise StopRequested(number)

    monkeypatch.setattr("nemo_gym.cli.composing.with_default_model", stop)
    monkeypatch.setattr("nemo_gym.cli.composing.without_model", stop)
    monkeypatch.setattr("nemo_gym.launch.fork_server.prestart", lambda: None)
    monkeypatch.setattr("nemo_gym.launch.fork_server.discard_prestarted", lambda: discarded.append(line))
    ended = gym(*line.split())
    assert (ended.code, ended.err) == (code, "")
    assert discarded == ([] if "--no-serve" in line else [line])
