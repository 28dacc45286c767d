"""Symbols that moved still import from their old home, with a warning."""

import importlib

import pytest

from nemo_gym import cli
from nemo_gym.cli._compat import moved_attr_getter


def test_a_moved_name_is_found_and_its_new_import_is_named() -> None:
    getter = moved_attr_getter("old.home", {"dumps": "json", "old_name": "json:loads"})
    with pytest.warns(DeprecationWarning, match=r"from json import dumps"):
        assert getter("dumps")([1]) == "[1]"
    with pytest.warns(DeprecationWarning, match=r"old\.home\.old_name .*from json import loads"):
        assert getter("old_name")("[1]") == [1]


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"old\.home.*nothing"):
        moved_attr_getter("old.home", {})("nothing")


@pytest.mark.parametrize(
    "name",
    [
        "RunHelper",
        "RunConfig",
        "TestConfig",
        "TestAllConfig",
        "PipListConfig",
        "run",
        "test",
        "test_all",
        "init_resources_server",
        "dump_config",
        "status",
        "pip_list",
        "e2e_rollout_collection",
        "dev_test",
        "VersionConfig",
        "version",
        "GlobalConfigDictParserConfig",
    ],
)
def test_names_that_once_lived_in_the_package(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"import {name}"):
        assert callable(getattr(cli, name))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("nemo_gym.cli_setup_command", "run_command"),
        ("nemo_gym.cli_setup_command", "setup_env_command"),
        ("nemo_gym.benchmarks", "list_benchmarks"),
        ("nemo_gym.benchmarks", "PrepareBenchmarkConfig"),
        ("nemo_gym.benchmarks", "prepare_benchmark"),
        ("nemo_gym.rollout_collection", "collect_rollouts"),
        ("nemo_gym.rollout_collection", "aggregate_rollouts"),
        ("nemo_gym.reward_profile", "reward_profile"),
        ("nemo_gym.train_data_utils", "prepare_data"),
        ("nemo_gym.prompt", "materialize_prompts_cli"),
    ],
)
def test_commands_that_once_lived_in_other_modules(module: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=r"nemo_gym\.cli"):
        assert callable(getattr(importlib.import_module(module), name))
