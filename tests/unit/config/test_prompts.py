"""Prompt templates."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError
from nemo_gym.prompt import (
    PromptConfig,
    apply_prompt_to_row,
    fill_prompt,
    load_prompt_config,
    materialize_prompts,
    validate_prompt_compatibility,
)

Write = Callable[[str, str], Path]


def test_filling_gives_messages() -> None:
    assert fill_prompt(PromptConfig(user="{q} {{x}}", system="Be {how}."), {"q": "2+2?", "how": "brief"}) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2? {x}"},
    ]
    assert fill_prompt(PromptConfig(user="hi"), {}) == [{"role": "user", "content": "hi"}]


def test_a_missing_field_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"field `question`.*it has: qestion, a.*Did you mean `qestion`"):
        fill_prompt(PromptConfig(user="{question}"), {"qestion": 1, "a": 2})


@pytest.mark.parametrize("template", ["{", "{0}", "{}"])
def test_a_malformed_template_is_said(template: str) -> None:
    with pytest.raises((ConfigError, KeyError)):
        fill_prompt(PromptConfig(user=template), {"a": 1})


def test_a_row_keeps_its_other_parameters_and_itself() -> None:
    row = {"q": "x", "responses_create_params": {"temperature": 1, "input": ""}}
    filled = apply_prompt_to_row(row, PromptConfig(user="{q}"))
    assert filled["responses_create_params"] == {"temperature": 1, "input": [{"role": "user", "content": "x"}]}
    assert row["responses_create_params"] == {"temperature": 1, "input": ""}
    assert "responses_create_params" in apply_prompt_to_row({"q": "x"}, PromptConfig(user="{q}"))


def test_rows_with_an_input_conflict() -> None:
    own = {"responses_create_params": {"input": "mine"}}
    validate_prompt_compatibility([{}, {"responses_create_params": {"input": []}}], PromptConfig(user=""))
    with pytest.raises(ValueError, match="rows 0, 2 already have"):
        validate_prompt_compatibility([own, {}, own], PromptConfig(user=""))


def test_prompts_are_looked_for_under_the_roots(tmp_path: Path) -> None:
    (tmp_path / "install" / "p.yaml").write_text("user: '{q}'\nsystem: s")
    assert load_prompt_config("p.yaml") == PromptConfig(user="{q}", system="s")


def test_prompts_that_are_none(write: Write) -> None:
    with pytest.raises(ConfigPathNotFoundError, match=r"no prompt config gone\.yaml"):
        load_prompt_config("gone.yaml")
    write("p.yaml", "system: s")
    with pytest.raises(ConfigError, match=r"p\.yaml needs `user"):
        load_prompt_config("p.yaml")


def test_a_file_of_rows_is_filled(write: Write, project: Path) -> None:
    write("p.yaml", "user: '{q}'")
    (project / "in.jsonl").write_text('\ufeff{"q": "a\u2028b"}\r\n\r\n{"q": "c"}', encoding="utf-8")
    assert materialize_prompts("in.jsonl", "p.yaml", "out/x.jsonl") == 2
    rows = [json.loads(line) for line in (project / "out" / "x.jsonl").read_text().splitlines()]
    assert rows[0]["responses_create_params"]["input"] == [{"role": "user", "content": "a\u2028b"}]
    assert rows[1]["prompt_config_used"] == str(project / "p.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"q": 1}\n{bad', r"in\.jsonl:2: not valid JSON"),
        ("[1]", r"in\.jsonl:1: a row must be an object"),
        ('{"x": 1}', "Row 0 of"),
    ],
)
def test_nothing_is_written_for_a_bad_file(write: Write, project: Path, text: str, said: str) -> None:
    write("p.yaml", "user: '{q}'")
    write("in.jsonl", text)
    with pytest.raises(ConfigError, match=said):
        materialize_prompts("in.jsonl", "p.yaml", "out.jsonl")
    assert sorted(path.name for path in project.iterdir()) == ["in.jsonl", "p.yaml"]


def test_a_file_that_is_gone_is_said(write: Write) -> None:
    write("p.yaml", "user: x")
    with pytest.raises(ConfigError, match=r"gone\.jsonl can't be read"):
        materialize_prompts("gone.jsonl", "p.yaml", "out.jsonl")


def test_one_name_in_two_folders_is_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "prompt.yaml").write_text(f"user: from {folder}\n")
        monkeypatch.chdir(tmp_path / folder)
        loaded.append(load_prompt_config("prompt.yaml").user)
    assert loaded == ["from a", "from b"]
