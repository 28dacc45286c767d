"""`_inherit_from`, `_copy`, `_delete_key`."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.directives import carry_out_directives
from nemo_gym.config.errors import (
    AmbiguousAgentRenameError,
    ConfigError,
    ConfigMissingValuesError,
    InheritPathNotFoundError,
)
from nemo_gym.config.origins import Origins
from nemo_gym.global_config import GlobalConfigDictParser
from tests.unit.config.conftest import agent, composed, model, parsed, plain, resources


def carried_out(**config: Any) -> dict[str, Any]:
    return carry_out_directives(config)


def test_what_is_inherited_moves_and_own_values_win() -> None:
    assert carried_out(old={"a": 1, "b": {"c": 2, "d": 3}}, new={"_inherit_from": "old", "b": {"c": 9}}) == {
        "new": {"a": 1, "b": {"c": 9, "d": 3}}
    }


def test_what_is_copied_stays() -> None:
    assert carried_out(old={"a": [1]}, new={"_copy": "old", "b": 2}) == {"old": {"a": [1]}, "new": {"a": [1], "b": 2}}


def test_the_short_forms_replace_a_value() -> None:
    config = {"x": "${inherit_from:old.a}", "y": "${copy:old.b}", "old": {"a": {"deep": 1}, "b": "text"}}
    assert carried_out(**config) == {"x": {"deep": 1}, "y": "text", "old": {"b": "text"}}


def test_several_may_inherit_the_same() -> None:
    assert carried_out(old={"a": 1}, one={"_inherit_from": "old"}, two={"_inherit_from": "old", "a": 2}) == {
        "one": {"a": 1},
        "two": {"a": 2},
    }


def test_sources_are_read_as_they_were() -> None:
    config = {"a": {"x": 1}, "b": {"_inherit_from": "a", "x": 2}, "c": {"_copy": "a"}}
    assert carried_out(**config) == {"b": {"x": 2}, "c": {"x": 1}}


def test_chains_are_followed() -> None:
    config = {"a": {"_inherit_from": "b", "x": 3}, "b": {"_inherit_from": "c", "y": 2}, "c": {"x": 1, "y": 1, "z": 1}}
    assert carried_out(**config) == {"a": {"x": 3, "y": 2, "z": 1}}


def test_a_part_of_an_inheriting_mapping_can_be_copied() -> None:
    config = {"c": {"part": {"x": 1}}, "b": {"_inherit_from": "c", "part": {"y": 2}}, "a": {"_copy": "b.part"}}
    assert carried_out(**config) == {"b": {"part": {"x": 1, "y": 2}}, "a": {"x": 1, "y": 2}}


def test_a_mapping_may_copy_from_beside_itself() -> None:
    assert carried_out(x={"y": "${copy:x.z}", "z": {"q": 1}}) == {"x": {"y": {"q": 1}, "z": {"q": 1}}}


def test_cycles_are_named() -> None:
    with pytest.raises(ConfigError, match=r"Circular .*: a → b → a\."):
        carried_out(a={"_inherit_from": "b"}, b={"_copy": "a"})


def test_elements_of_lists_stay_but_what_is_in_them_is_swapped() -> None:
    config = {"src": {"k": 1}, "items": ["${copy:src}", {"_copy": "src", "inner": "${copy:src.k}"}]}
    assert carried_out(**config)["items"] == ["${copy:src}", {"_copy": "src", "inner": 1}]


def test_both_directives_together_merge_their_sources() -> None:
    config = {"a": {"x": 1, "y": 1}, "b": {"y": 2}, "c": {"_inherit_from": "a", "_copy": "b"}}
    assert carried_out(**config) == {"b": {"y": 2}, "c": {"x": 1, "y": 2}}


def test_a_value_of_any_kind_can_be_copied() -> None:
    assert carried_out(a={"zero": 0, "none": None}, b={"_copy": "a.zero"}, c="${copy:a.none}") == {
        "a": {"zero": 0, "none": None},
        "b": 0,
        "c": None,
    }


def test_lists_replace_each_other() -> None:
    assert carried_out(a={"l": [1, 2, 3]}, b={"_copy": "a", "l": [4]})["b"] == {"l": [4]}


def test_a_path_may_go_through_lists_and_numbers() -> None:
    assert carried_out(a=[{"x": 1}], b={3: "three"}, c="${copy:a.0.x}", d="${copy:b.3}") == {
        "a": [{"x": 1}],
        "b": {3: "three"},
        "c": 1,
        "d": "three",
    }


def test_keys_are_deleted_from_what_is_taken_over() -> None:
    config = {"a": {"x": 1, "y": 2, "z": 3}, "b": {"_copy": "a", "_delete_key": "x, z"}}
    assert carried_out(**config)["b"] == {"y": 2}


def test_a_deleted_key_of_the_mapping_itself_shows_what_is_below() -> None:
    config = {"a": {"x": 1}, "b": {"_copy": "a", "x": 2, "_delete_key": "x"}, "c": {"x": 1, "_delete_key": "x"}}
    assert carried_out(**config) == {"a": {"x": 1}, "b": {"x": 1}, "c": {}}


def test_deleting_what_is_not_there_is_an_error_with_the_place() -> None:
    with pytest.raises(ConfigError, match=r"b\._delete_key names `limt`.* Did you mean `limit`\?"):
        carried_out(a={"limit": 1}, b={"_copy": "a", "_delete_key": "limt"})


def test_a_source_that_is_not_there_is_named_with_who_asked_and_all_at_once() -> None:
    origins = Origins()
    origins.lay({"b": {"_inherit_from": "tiny_evn"}, "c": "${copy:tiny_env.z}"}, "over.yaml")
    config = {"tiny_env": {"x": 1}, "b": {"_inherit_from": "tiny_evn"}, "c": "${copy:tiny_env.z}"}
    with pytest.raises(InheritPathNotFoundError) as caught:
        carry_out_directives(config, origins)
    assert len(caught.value.problems) == 2
    assert "b (over.yaml) takes over `tiny_evn`" in str(caught.value)
    assert "Did you mean `tiny_env`?" in str(caught.value)
    assert "c (over.yaml) takes over `tiny_env.z`" in str(caught.value)


@pytest.mark.parametrize("source", ["a.x", "a.x.deeper"])
def test_what_is_missing_stays_missing(source: str) -> None:
    assert carried_out(a={"x": "???"}, b=f"${{copy:{source}}}", c={"_copy": source, "y": 1}) == {
        "a": {"x": "???"},
        "b": "???",
        "c": "???",
    }


def test_missing_values_in_what_was_deleted_are_nobodys_business() -> None:
    template = {"limit": 1, "secret": "???"}
    config = {"template": template, "scratch": {"_inherit_from": "template", "_delete_key": "secret"}}
    assert composed(config).scratch == {"limit": 1}
    with pytest.raises(ConfigMissingValuesError, match=r"scratch\.secret"):
        composed({"template": template, "scratch": {"_inherit_from": "template"}})


def test_interpolations_move_as_written() -> None:
    assert carried_out(a={"x": "${oc.env:X}"}, b={"_inherit_from": "a"}) == {"b": {"x": "${oc.env:X}"}}


def test_origins_follow_what_moves() -> None:
    origins = Origins()
    config = {"a": {"x": 1, "y": 1}, "b": {"_inherit_from": "a", "y": 2}}
    origins.lay({"a": config["a"]}, "a.yaml")
    origins.lay({"b": config["b"]}, "b.yaml")
    carry_out_directives(config, origins)
    assert [origins.of(path) for path in (["b", "x"], ["b", "y"], ["a"])] == ["a.yaml", "b.yaml", None]


def front(name: str) -> dict[str, Any]:
    reference = {"type": "responses_api_agents", "name": name}
    return {"environment_servers": {"legacy_agent": {"entrypoint": "app.py", "agent_server": reference}}}


def test_an_environment_server_follows_the_agent_that_took_over() -> None:
    config = {
        "env": resources(),
        "policy_model": model(),
        "old": agent(serves="env"),
        "front": front("old"),
        "new": {"_inherit_from": "old"},
    }
    assert composed(config).front.environment_servers.legacy_agent.agent_server.name == "new"


def test_several_heirs_of_a_named_agent_are_ambiguous() -> None:
    config = {"old": agent(), "front": front("old"), "one": {"_inherit_from": "old"}, "two": {"_inherit_from": "old"}}
    with pytest.raises(AmbiguousAgentRenameError) as caught:
        carry_out_directives(config)
    assert "front.environment_servers.legacy_agent.agent_server.name" in str(caught.value)
    assert "`one` and `two`" in str(caught.value)


def test_heirs_don_t_matter_when_nobody_names_the_old_agent() -> None:
    config = {"old": agent(), "one": {"_inherit_from": "old"}, "two": {"_inherit_from": "old"}}
    assert set(carry_out_directives(config)) == {"one", "two"}


def test_the_parser_swaps_in_place_for_components() -> None:
    config = OmegaConf.create({"a": {"x": 1}, "b": {"_inherit_from": "a"}})
    assert GlobalConfigDictParser()._recursively_swap_keys(config) is config
    assert plain(config) == {"b": {"x": 1}}


def test_directives_of_every_layer_see_the_merged_config(project: Path) -> None:
    (project / "base.yaml").write_text("a: {x: 1}\nb: {_copy: a}")
    (project / "over.yaml").write_text("a: {x: 2}\nb: {y: 3}")
    assert parsed("+config_paths=[base.yaml,over.yaml]", "++a.z=4").b == {"x": 2, "y": 3, "z": 4}
