"""Config files that name others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError, MalformedConfigPathsError
from nemo_gym.config.includes import load_includes
from tests.unit.config.conftest import parsed, parser_and_config

Write = Callable[[str, str], Path]


def test_each_subtree_is_merged_whole_and_the_includer_last(write: Write) -> None:
    for name, includes in {"A": ["A1"], "A1": [], "B": ["B1"], "B1": ["B2"], "B2": []}.items():
        write(f"{name}.yaml", f"config_paths: [{', '.join(f'{child}.yaml' for child in includes)}]\nwho: {name}\n")
    result = load_includes(["A.yaml", "B.yaml"])
    assert [layer.label for layer in result.layers] == ["A1.yaml", "A.yaml", "B2.yaml", "B1.yaml", "B.yaml"]
    assert result.paths == ["A.yaml", "B.yaml", "A1.yaml", "B1.yaml", "B2.yaml"]


def test_a_file_named_twice_is_loaded_once_and_told(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("a.yaml", "config_paths: [b.yaml]")
    write("b.yaml", "config_paths: [a.yaml]")
    result = load_includes(["a.yaml", "b.yaml"])
    assert [layer.label for layer in result.layers] == ["a.yaml", "b.yaml"]
    assert "loaded once: b.yaml, a.yaml" in capsys.readouterr().err


def test_relative_paths_are_looked_for_under_every_root(
    write: Write, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "c.yaml").write_text("who: extra")
    (tmp_path / "install" / "d.yaml").write_text("d: 1")
    write("c.yaml", "who: project")
    assert parsed("+config_paths=[c.yaml,d.yaml]").who == "project"
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(extra))
    assert parsed("+config_paths=[c.yaml,d.yaml]").who == "extra"


def test_every_missing_file_is_reported_with_the_places_and_a_suggestion(write: Write, project: Path) -> None:
    write("resources_servers/mcqa/configs/mcqa.yaml", "a: 1")
    with pytest.raises(ConfigPathNotFoundError) as caught:
        parsed("+config_paths=[resources_servers/mqca/configs/mcqa.yaml,gone.yaml]", "b=1")
    message = str(caught.value)
    assert "3 problems" in message
    assert "Did you mean `resources_servers/mcqa/configs/mcqa.yaml`?" in message
    assert str(project / "gone.yaml") in message
    assert "`b=1` changes `b`" in message
    assert isinstance(caught.value, ConfigError)


def test_a_missing_config_is_a_file_not_found_error_too() -> None:
    with pytest.raises(FileNotFoundError):
        parsed("+config_paths=[gone.yaml]")


@pytest.mark.parametrize("value", ["a.yaml", "[1]", "{a: 1}"])
def test_config_paths_must_be_a_list_of_strings(value: str) -> None:
    with pytest.raises(MalformedConfigPathsError, match=r"\+config_paths=\[a.yaml\]"):
        parsed(f"+config_paths={value}")


def test_a_file_whose_config_paths_are_malformed_is_named(write: Write) -> None:
    write("a.yaml", "config_paths: b.yaml")
    with pytest.raises(MalformedConfigPathsError, match=r"in a\.yaml"):
        parsed("+config_paths=[a.yaml]")


def test_config_paths_may_come_from_a_list_in_env_yaml(write: Write) -> None:
    write("env.yaml", "my_files: [a.yaml]\nconfig_paths: [b.yaml]")
    write("a.yaml", "who: a")
    write("b.yaml", "who: b")
    assert parsed().who == "b"
    assert parsed("+config_paths=${my_files}").who == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [1\n", r"bad\.yaml:3:1: not valid YAML"),
        ("a: 1\na: 2\n", r"bad\.yaml:2:1: .*`a` is given twice"),
        ("- a\n", r"bad\.yaml must hold a mapping"),
        ("a: ${b\n", r"bad\.yaml at `a`"),
    ],
)
def test_a_malformed_file_is_named_with_the_place(write: Write, text: str, said: str) -> None:
    write("bad.yaml", text)
    with pytest.raises(ConfigError, match=said):
        parsed("+config_paths=[bad.yaml]")


def test_text_that_is_not_utf8_is_refused(project: Path) -> None:
    (project / "bad.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        parsed("+config_paths=[bad.yaml]")


def test_yaml_is_read_as_omegaconf_reads_it(project: Path) -> None:
    (project / "a.yaml").write_bytes(b"\xef\xbb\xbfwhen: 2020-01-01\r\nsmall: 1e-3\r\nempty:\r\nyes_text: 'yes'\r\n")
    config = parsed("+config_paths=[a.yaml]")
    assert (config.when, config.small, config.empty, config.yes_text) == ("2020-01-01", 0.001, None, "yes")


def test_an_older_path_is_followed_with_a_warning(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("environments/hermes_reasoning_gym/config.yaml", "who: new")
    config = parsed("+config_paths=[environments/reasoning_gym_hermes/config.yaml]")
    assert config.who == "new"
    assert "environments/hermes_reasoning_gym/config.yaml: use that path" in capsys.readouterr().err


def test_an_older_path_that_exists_is_used_itself(write: Write) -> None:
    write("environments/hermes_reasoning_gym/config.yaml", "who: new")
    write("environments/reasoning_gym_hermes/config.yaml", "who: old")
    assert parsed("+config_paths=[environments/reasoning_gym_hermes/config.yaml]").who == "old"


def test_fallback_files_lie_beneath_everything(write: Write) -> None:
    write("fallback.yaml", "a: fallback\nb: fallback\nc: fallback")
    write("named.yaml", "b: named\nc: named")
    write("env.yaml", "c: env")
    config = parsed("+config_paths=[named.yaml]", fallback_config_paths=["fallback.yaml"])
    assert (config.a, config.b, config.c) == ("fallback", "named", "env")


def test_origins_name_the_file_that_set_a_value(write: Write) -> None:
    write("a.yaml", "config_paths: [b.yaml]\nx: {one: 1, two: '???'}\nkept: 1")
    write("b.yaml", "x: {one: 0, two: 2}\nlist: [1]")
    write("env.yaml", "list: [2]")
    parser, _ = parser_and_config("+config_paths=[a.yaml]", "+kept=2")
    assert [parser.origins.of(path) for path in (["x", "one"], ["x", "two"], ["list"], ["kept"], ["nobody"])] == [
        "a.yaml",
        "b.yaml",
        "env.yaml",
        "`+kept=2` on the command line",
        None,
    ]
