"""What the command line answers before any command runs: help, versions, suggestions and exit codes."""

import json

import pytest

from nemo_gym import __version__
from nemo_gym.cli.commands import COMMANDS, GROUPS
from tests.unit.cli.conftest import Gym


def test_gym_alone_prints_help_and_fails(gym: Gym) -> None:
    alone, asked = gym(), gym("--help")
    assert (alone.code, asked.code) == (1, 0)
    assert alone.out == asked.out
    assert all(group in alone.out for group in GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_prints_its_commands_and_fails(gym: Gym, group: str) -> None:
    alone, asked = gym(group), gym(group, "--help")
    assert (alone.code, asked.code) == (1, 0)
    assert alone.out == asked.out
    for name, command in COMMANDS.items():
        if name.startswith(f"{group} "):
            assert command.summary.split()[0] in alone.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_every_flag(gym: Gym, name: str) -> None:
    ended = gym(*name.split(), "--help")
    assert ended.code == 0
    assert f"gym {name}" in ended.out
    for flag in COMMANDS[name].flags:
        assert all(spelling in ended.out for spelling in flag.names)
    assert gym("-h", *name.split()) == ended


@pytest.mark.parametrize("token", ["+help=true", "+h=true"])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_override_asks_for_the_commands_config_keys(gym: Gym, name: str, token: str) -> None:
    ended = gym(*name.split(), token)
    assert (ended.code, ended.err) == (0, "")
    lists_keys = ended.out.count("\n  +") + ended.out.count("\n+") > 0
    assert lists_keys if COMMANDS[name].config else ended == gym(*name.split(), "--help")


@pytest.mark.parametrize(
    "argv",
    [
        ["dataset", "upload", "--name", "x"],
        ["dataset", "download"],
        ["dataset", "rm"],
        ["dataset", "migrate"],
        ["eval", "health-check", "results"],
        ["eval", "export"],
        ["eval", "reverify"],
        ["eval", "compare", "--baseline", "a"],
    ],
)
def test_later_commands_say_so_in_one_sentence(gym: Gym, argv: list[str]) -> None:
    ended = gym(*argv)
    assert ended.code == 2
    assert ended.out == ""
    assert "not available yet" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["evl", "run"], "Did you mean `eval`?"),
        (["env", "strat"], "Did you mean `start`?"),
        (["eval", "run", "--otput", "x"], "Did you mean `--output`?"),
        (["eval", "run", "--otput=x"], "Did you mean `--output`?"),
        (["--verbse", "env", "start"], "Did you mean `--verbose`?"),
        (["--verbse"], "Did you mean `--verbose`?"),
        (["dataset", "collate", "--mode", "example_validate"], "Did you mean `example_validation`?"),
        (["env", "start", "detach"], "unexpected argument 'detach'. Did you mean `--detach`?"),
        (["env", "start", "detatch"], "'detatch' is no environment's file, which ends in .py"),
        (["env", "start", "detatch"], "Did you mean `--detach`?"),
        (["eval", "run", "mcqa"], "Did you mean `--resources-server mcqa`?"),
        (["eval", "run", "wordle"], "Did you mean `--environment wordle`?"),
        (["env", "status", "--output", "x"], "It is a flag of `gym dataset render`, `gym eval run`"),
    ],
)
def test_a_wrong_word_is_a_usage_error_with_a_suggestion(gym: Gym, argv: list[str], hint: str) -> None:
    ended = gym(*argv)
    assert ended.code == 2
    assert hint in ended.err
    assert ended.out == ""


def test_a_rejected_flag_is_never_its_own_suggestion(gym: Gym) -> None:
    ended = gym("env", "start", "--output", "x")
    assert ended.code == 2
    assert "Did you mean `--output`" not in ended.err


def test_several_unknown_flags_are_named_together(gym: Gym) -> None:
    ended = gym("env", "status", "--foo", "--bar")
    assert "--foo" in ended.err and "--bar" in ended.err


def test_json_before_a_command_that_prints_none_is_refused(gym: Gym) -> None:
    ended = gym("--json", "env", "start")
    assert ended.code == 2
    assert "--json" in ended.err


@pytest.mark.parametrize(
    "argv", [["--version", "--json"], ["--json", "--version"], ["--version", "+json=true"], ["+json=true", "--version"]]
)
def test_versions_as_json(gym: Gym, argv: list[str]) -> None:
    ended = gym(*argv)
    facts = json.loads(ended.out)
    assert ended.code == 0
    assert list(facts) == ["nemo_gym", "python", "python_path", "installation_path", "dependencies", "system"]
    assert facts["nemo_gym"] == __version__
    assert set(facts["dependencies"]) == {"openai", "ray"}
    assert set(facts["system"]) == {"os", "platform", "architecture", "processor", "cpus", "memory_gb"}


def test_versions_for_people(gym: Gym) -> None:
    ended = gym("--version")
    assert ended.out.startswith(f"NeMo Gym v{__version__}\n")
    assert "Key Dependencies" in ended.out


def test_versions_come_before_any_command(gym: Gym) -> None:
    assert gym("--version", "nonsense").out.startswith("NeMo Gym v")


def test_no_serve_refuses_to_compose_an_agent(gym: Gym, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.config.selectors.resolve_selector", lambda flag, value: value)
    ended = gym("eval", "run", "--no-serve", "--agent-type", "simple_agent")
    assert ended.code == 2
    assert "--agent" in ended.err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--model", "m", "--model-url", "http://a/v1"], "--model, --model-url have no effect with --no-serve"),
        (["--model-type", "openai_model"], "--model-type has no effect with --no-serve"),
        (["--resume", "++policy_model_name=m"], "--model has no effect with --no-serve"),
        (["+placement=shared"], "+placement has no effect with --no-serve"),
        (["--limit", "3"], None),
    ],
)
def test_no_serve_says_what_it_does_not_heed(
    gym: Gym, monkeypatch: pytest.MonkeyPatch, given: list[str], told: str | None
) -> None:
    """Spec 10 §11 accepts such flags; a person must hear that the running model is asked."""
    monkeypatch.setattr("nemo_gym.config.selectors.resolve_selector", lambda flag, value: value)
    monkeypatch.setattr("nemo_gym.cli.eval.collect_rollouts", lambda: None)
    ended = gym("eval", "run", "--no-serve", *given)
    assert ended.code == 0 and ended.err.count("--no-serve") == (2 if told else 0)
    assert told is None or f"Warning: {told}" in ended.err


def test_an_empty_name_in_a_list_is_refused(gym: Gym) -> None:
    ended = gym("eval", "run", "--health-check-ignore", "a,,b")
    assert ended.code == 2
    assert "--health-check-ignore" in ended.err


def test_a_search_dir_must_exist(gym: Gym) -> None:
    ended = gym("env", "resolve", "--search-dir", "/no/such/folder")
    assert ended.code == 2
    assert "/no/such/folder" in ended.err
