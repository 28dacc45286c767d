"""Slips of the pen in top-level keys, and what env.yaml does unnoticed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.hints import closest, did_you_mean, enumeration, unknown_keys
from tests.unit.config.conftest import composed, parsed

Write = Callable[[str, str], Path]
Capture = pytest.CaptureFixture[str]


def test_a_misspelled_setting_is_warned_about_with_its_origin(write: Write, capsys: Capture) -> None:
    write("a.yaml", "skip_venv_if_presnt: true")
    parsed("+config_paths=[a.yaml]")
    err = capsys.readouterr().err
    assert "`skip_venv_if_presnt` (a.yaml) is no setting of Gym. Did you mean `skip_venv_if_present`?" in err


@pytest.mark.parametrize(
    "config",
    [{"my_setting": 1}, {"dry_runs": 1, "x": "${dry_runs}"}, {"skip_venv_if_present": True}, {"num_repeats": 2}],
)
def test_other_keys_are_fine(config: dict[str, object], capsys: Capture) -> None:
    composed(config)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            "resource_servers: {mcqa: {entrypoint: app.py}}",
            "srv.resource_servers` (a.yaml) makes no server. Did you mean `resources_servers",
        ),
        (
            "resources_servers: {mcqa: {entrypiont: app.py}}",
            "srv.resources_servers.mcqa.entrypiont` (a.yaml) makes no server. Did you mean `entrypoint",
        ),
    ],
)
def test_a_server_that_is_none_by_a_slip_is_warned_about(write: Write, capsys: Capture, entry: str, told: str) -> None:
    write("a.yaml", f"srv: {{{entry}}}")
    parsed("+config_paths=[a.yaml]")
    assert capsys.readouterr().err == f"Warning: `{told}`?\n"


@pytest.mark.parametrize(
    "entry",
    [
        {"resource_server": {"type": "resources_servers", "name": "x"}},
        {"resources": {"a": {"entrypoint": "x"}}},
        {"resources_servers": {"mcqa": {"entry": 1}}},
        {"resource_servers": "x"},
    ],
)
def test_scratch_space_is_left_alone(entry: dict[str, object], capsys: Capture) -> None:
    composed({"srv": entry})
    assert capsys.readouterr().err == ""


def test_a_key_of_env_yaml_that_nothing_uses_is_warned_about(write: Write, capsys: Capture) -> None:
    write(
        "env.yaml",
        "openai_api_key: k\nused: 1\npolicy_api_key: k\nshared: 1\nserver: {resources_servers: {}}\nlimit: 3",
    )
    write("a.yaml", "x: ${used}\nshared: 2")
    parsed("+config_paths=[a.yaml]")
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning")]
    assert warnings == [
        "Warning: `openai_api_key` in env.yaml isn't used by any loaded config. Did you mean `policy_api_key`?"
    ]


def test_without_a_config_file_env_yaml_is_not_judged(write: Write, capsys: Capture) -> None:
    write("env.yaml", "openai_api_key: k")
    parsed()
    assert capsys.readouterr().err == ""


def test_where_env_yaml_has_the_last_word_over_a_named_file_is_said(write: Write, capsys: Capture) -> None:
    write("env.yaml", "a: {limit: 100, my_token: t2, same: 1, new: 1}\nlist: [2]\nby_hand: 2")
    write("a.yaml", "a: {limit: 3, my_token: t1, same: 1}\nlist: [1]\nby_hand: 1\nx: ['${a}', '${list}', '${by_hand}']")
    config = parsed("+config_paths=[a.yaml]", "++by_hand=3")
    assert config.a.limit == 100
    assert capsys.readouterr().err.splitlines() == [
        "Note: env.yaml sets a.limit over a.yaml: 100 instead of 3.",
        "Note: env.yaml sets a.my_token over a.yaml.",
        "Note: env.yaml sets list over a.yaml: [2] instead of [1].",
    ]


def test_layers_from_weakest_to_strongest(write: Write) -> None:
    write("a.yaml", "one: file\ntwo: file\nthree: file\nfour: file")
    write("env.yaml", "two: env\nthree: env\nfour: env")
    initial = OmegaConf.create({"three": "initial", "four": "initial"})
    config = parsed("+config_paths=[a.yaml]", "+four=cli", initial_global_config_dict=initial)
    assert (config.one, config.two, config.three, config.four) == ("file", "env", "initial", "cli")


def test_env_yaml_may_be_given_missing_or_left_out(write: Write, project: Path, tmp_path: Path) -> None:
    write("env.yaml", "who: project")
    (tmp_path / "install" / "env.yaml").write_text("who: install\nonly: install")
    other = write("other.yaml", "who: other")
    assert parsed().who == "project"
    assert "only" not in parsed()
    assert parsed(dotenv_path=other).who == "other"
    assert "who" not in parsed(dotenv_path=project / "gone.yaml")
    assert "who" not in parsed(skip_load_from_dotenv=True)
    (project / "env.yaml").unlink()
    assert parsed().who == "install"


def test_unknown_keys_of_a_block_come_with_what_is_probably_meant() -> None:
    fields = ["entrypoint", "max_steps", "host"]
    assert unknown_keys(["max_step", "host", "zzz"], fields) == [("max_step", "max_steps"), ("zzz", None)]


def test_suggestions_never_repeat_what_was_typed() -> None:
    assert closest("limit", ["limit", "limits"]) == "limits"
    assert closest("Limit", ["limit"]) == "limit"
    assert closest("limit", ["limit"]) is None
    assert did_you_mean("abc", ["xyz"]) == ""


def test_enumeration() -> None:
    assert [enumeration(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize("command_line", [(), ("+config_paths=${my_list}",)])
def test_paths_that_env_yaml_lists_are_used_and_replace_nothing(
    write: Write, capsys: Capture, command_line: tuple[str, ...]
) -> None:
    write("env.yaml", "my_list: [a.yaml]\n" + ("" if command_line else "config_paths: ${my_list}"))
    write("a.yaml", "config_paths: [b.yaml]")
    write("b.yaml", "x: 1")
    assert parsed(*command_line).x == 1
    assert capsys.readouterr().err == ""
