"""Helpers that commands and other modules share."""

import json

import pytest

from nemo_gym.cli.utils import (
    did_you_mean,
    exit_cleanly_on_config_error,
    exit_unknown_component,
    fuzzy_matches,
    print_no_matches,
    print_rich_table,
    render_component_inspection,
)
from nemo_gym.config_types import ConfigError
from nemo_gym.errors import UsageError


def test_the_closest_other_name_is_suggested() -> None:
    assert did_you_mean("mcqaa", ["mcqa", "gsm8k"]) == " Did you mean `mcqa`?"
    assert did_you_mean("mcqa", ["mcqa"]) == ""
    assert did_you_mean("zzz", ["mcqa"]) == ""


@pytest.mark.parametrize(
    ("query", "fields", "matches"),
    [
        ("MATH", ("some_math_server",), True),
        ("reasonin", ("long reasoning tasks",), True),
        ("verifcation", ("format-verification",), True),
        ("ver", ("format_verification",), True),
        ("chess", ("format_verification", None, ""), False),
    ],
)
def test_a_query_matches_parts_and_close_words(query: str, fields: tuple[str | None, ...], matches: bool) -> None:
    assert fuzzy_matches(query, *fields) is matches


def test_an_unknown_component_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        exit_unknown_component("agent", "simple_agnt", ["simple_agent"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "Error: unknown agent 'simple_agnt'. Did you mean `simple_agent`?\n"


def test_an_inspection_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    details, usage = {"config": "a.yaml"}, "gym env start"
    render_component_inspection(
        name="mcqa", noun="server", domain="math", description="Quiz.", details=details, usage_example=usage
    )
    assert capsys.readouterr().out == (
        "The mcqa server (domain: math)\n\nQuiz.\n\nDetails:\n  config: a.yaml\n\nUsage example:\n  gym env start\n"
    )
    render_component_inspection(name="mcqa", noun="server", json_format=True)
    assert json.loads(capsys.readouterr().out) == {
        "name": "mcqa",
        "type": "server",
        "domain": None,
        "description": None,
        "details": {},
        "usage_example": None,
    }


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_no_matches("agents")
    print_no_matches("agents", "x")
    print_no_matches("agents", "x", json_format=True)
    assert capsys.readouterr().out == "No agents found.\nNo agents match 'x'.\n[]\n"


def test_a_table_cuts_no_cell_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rich_table("Servers", ["Name", "Description"], [["mcqa", "x" * 300]])
    assert "x" * 300 in capsys.readouterr().out


def test_a_guarded_function_ends_with_the_mistakes_own_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @exit_cleanly_on_config_error
    def fail(error: Exception) -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["gym"])
    for error, code in ((ConfigError("no a."), 1), (UsageError("no b."), 2)):
        with pytest.raises(SystemExit) as ended:
            fail(error)
        assert ended.value.code == code
        assert capsys.readouterr().err == f"Error: {error}\n"
    with pytest.raises(RuntimeError):
        fail(RuntimeError("a bug"))
    monkeypatch.setattr("sys.argv", ["gym", "+verbose=true"])
    with pytest.raises(ConfigError):
        fail(ConfigError("no a."))
