"""The grammar of overrides."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.overrides import parse_overrides
from tests.unit.config.conftest import plain


def values(*tokens: str) -> dict[str, Any]:
    overrides = parse_overrides(tokens)
    assert overrides.problems == []
    return plain(overrides.config)


def problems(*tokens: str) -> list[str]:
    return [str(problem) for problem in parse_overrides(tokens).problems]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("+a=1", {"a": 1}),
        ("++a.b.c=x", {"a": {"b": {"c": "x"}}}),
        ("+a=[x,2,null]", {"a": ["x", 2, None]}),
        ("+a={b: 1, c: [d]}", {"a": {"b": 1, "c": ["d"]}}),
        ('+a="x y, z"', {"a": "x y, z"}),
        ("+a=x y", {"a": "x y"}),
        ("+a=true", {"a": True}),
        ("+a=1.5e3", {"a": 1500.0}),
        ("+a=null", {"a": None}),
        ("+a=", {"a": ""}),
        ("+a='1'", {"a": "1"}),
        ("+a=http://host:1/v1", {"a": "http://host:1/v1"}),
        ("+a=${oc.env:NAME}", {"a": "${oc.env:NAME}"}),
        ("+my-key.b=1", {"my-key": {"b": 1}}),
    ],
)
def test_values_are_typed_by_the_grammar(token: str, expected: dict[str, Any]) -> None:
    assert values(token) == expected


def test_overrides_act_in_order() -> None:
    assert values("+a=1", "++a=2", "a=3", "+b=1", "~b") == {"a": 3}


def test_mappings_given_twice_are_merged() -> None:
    assert values("+a={x: 1}", "+a={y: 2}") == {"a": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (["+a=1", "+a=2"], "`+a=2` adds `a`, which is set already"),
        (["a.b=5"], "write `++a.b=5` to set it"),
        (["~a.b"], "`_delete_key: b`"),
        (["+a=1", "~a=2"], "only if it has that value"),
        (["+a=1,2"], "write a list as '+a=[a,b]'"),
        (["+a/b=1"], "config group"),
        (["+a@b=1"], "config group"),
        (["+a=[1"], "can't be read"),
        (["word"], "can't be read"),
        (["--flag"], "can't be read"),
        (["+a=[1]", "+a.b=2"], "can't be applied"),
    ],
)
def test_what_cannot_be_done_is_said(tokens: list[str], said: str) -> None:
    (problem,) = problems(*tokens)
    assert said in problem


def test_every_wrong_override_is_reported_and_the_others_count() -> None:
    overrides = parse_overrides(["+a=[", "+b=1", "c=2"])
    assert len(overrides.problems) == 2
    assert plain(overrides.config) == {"b": 1}


def test_secrets_are_not_repeated_in_messages() -> None:
    (problem,) = problems("policy_api_key=sk-1234567890")
    assert "sk-1234567890" not in problem
    assert "****" in problem


def test_help_and_settings_of_hydra_mean_nothing() -> None:
    assert values("-h", "--help", "hydra.run.dir=x", "+a=1") == {"a": 1}


def test_origins_name_the_override() -> None:
    overrides = parse_overrides(["+a={b: 1, c: 2}", "++a.b=3"])
    assert overrides.origins.of(["a", "b"]) == "`++a.b=3` on the command line"
    assert overrides.origins.of(["a", "c"]) == "`+a={b: 1, c: 2}` on the command line"


def test_nothing_is_written(project: Path) -> None:
    parse_overrides(["+a=1"])
    assert list(project.iterdir()) == []
