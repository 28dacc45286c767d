"""`${…}`: lazy, and clear about what is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.errors import ConfigError, ConfigInterpolationError
from nemo_gym.config.interpolations import mentioned_keys, raise_on_unresolved, resolved, tolerantly_resolved
from tests.unit.config.conftest import composed, model, parser_and_config, plain

Write = Callable[[str, str], Path]
OPENAI = {
    "openai_base_url": "${policy_base_url}",
    "openai_api_key": "${policy_api_key}",
    "openai_model": "${policy_model_name}",
}


def test_interpolations_stay_as_written_and_resolve_with_the_whole() -> None:
    config = composed({"a": {"x": "${b.y}", "z": "${oc.env:HOME}"}, "b": {"y": [1, "${c}"]}, "c": 3})
    assert plain(config)["a"] == {"x": "${b.y}", "z": "${oc.env:HOME}"}
    assert config.a.x == [1, 3]


def test_every_unresolved_value_is_named_with_file_key_and_remedy(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    write("a.yaml", "a: {x: '${gone}', y: '${oc.env:NOT_SET}'}\nl: [1, '${gone.deeper}']\nok: '${oc.env:NOT_SET,1}'")
    parser, config = parser_and_config("+config_paths=[a.yaml]")
    with pytest.raises(ConfigInterpolationError) as caught:
        resolved(config, parser.origins)
    assert len(caught.value.problems) == 3
    text = str(caught.value)
    assert "a.x (a.yaml) refers to `${gone}`, which nothing sets: add `++gone=<value>`" in text
    assert "a.y (a.yaml) can't be resolved: Environment variable 'NOT_SET' not found" in text
    assert "l[1] (a.yaml) refers to `${gone.deeper}`" in text


def test_what_goes_through_another_value_is_named_once() -> None:
    with pytest.raises(ConfigInterpolationError) as caught:
        raise_on_unresolved(composed({"a": {"x": {"y": "${gone}"}}, "b": "${a.x}"}))
    assert caught.value.problems == ()


def test_a_model_without_policy_values_composes_and_asks_for_all_three_in_one_sentence() -> None:
    config = composed({"policy_model": model(**OPENAI)})
    with pytest.raises(ConfigInterpolationError) as caught:
        raise_on_unresolved(config)
    assert str(caught.value) == (
        "The model server `policy_model` needs policy_base_url, policy_api_key and policy_model_name: "
        "pass --model-url, --model-api-key and --model, or set them in env.yaml."
    )


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"policy_base_url": "", "policy_api_key": "", "policy_model_name": ""}, "three"),
        ({"policy_base_url": "http://x", "policy_api_key": "k", "policy_model_name": None}, ["policy_model_name"]),
        ({"policy_base_url": "http://x", "policy_api_key": "", "policy_model_name": ""}, ["policy_model_name"]),
        ({"policy_base_url": "http://x", "policy_model_name": "m"}, ["policy_api_key"]),
        ({"policy_base_url": "http://x", "policy_model_name": "m", "policy_api_key": ""}, []),
        ({"policy_base_url": ["http://x"], "policy_model_name": "m", "policy_api_key": "k"}, []),
        (
            {"policy_base_url": "${oc.env:NOT_SET}", "policy_model_name": "m", "policy_api_key": "k"},
            ["policy_base_url"],
        ),
    ],
)
def test_only_missing_policy_values_are_asked_for(given: dict[str, Any], asked: Any) -> None:
    wanted = ["policy_base_url", "policy_api_key", "policy_model_name"] if asked == "three" else asked
    config = composed({"policy_model": model(**OPENAI), **given})
    if not wanted:
        raise_on_unresolved(config)
        return
    with pytest.raises(ConfigInterpolationError) as caught:
        raise_on_unresolved(config)
    sentence = str(caught.value).partition("needs ")[2].partition(":")[0]
    assert sentence.replace(" and ", ", ").split(", ") == wanted


def test_missing_and_absent_values_are_not_unresolved() -> None:
    raise_on_unresolved(OmegaConf.create({"a": "???", "b": None, "c": {"d": ["???"]}}))


def test_only_some_entries_may_be_looked_at() -> None:
    config = OmegaConf.create({"a": "${gone}", "b": {"c": "${lost}"}})
    with pytest.raises(ConfigInterpolationError, match="lost") as caught:
        raise_on_unresolved(config, within={"b"})
    assert caught.value.problems == ()
    raise_on_unresolved(config, within={"c"})


def test_policy_values_that_nobody_asks_for_may_be_empty() -> None:
    raise_on_unresolved(composed({"policy_base_url": "", "policy_model": model("embedded")}))


def test_settings_that_do_not_resolve_are_config_errors(write: Write) -> None:
    with pytest.raises(ConfigInterpolationError, match=r"\+\+gone=<value>"):
        composed({"default_host": "${gone}"})
    with pytest.raises(ConfigError, match="gone"):
        parser_and_config("+config_paths=${gone}")


def test_what_does_not_resolve_is_left_as_written_where_only_reading() -> None:
    config = OmegaConf.create({"a": "${b}", "b": {"x": "${gone}", "y": ["${c}", "???"]}, "c": 1})
    expected = {"x": "${gone}", "y": [1, "???"]}
    assert tolerantly_resolved(config) == {"a": expected, "b": expected, "c": 1}


def test_mentioned_keys() -> None:
    value = {"a": "${x}", "b": ["${y.z}/${oc.select:w,1}", {"c": "${oc.env:HOME}"}], "d": "${.sibling}"}
    assert set(mentioned_keys(value)) - {"oc.env", "oc"} >= {"x", "y", "w"}
    assert "HOME" not in set(mentioned_keys(value))
