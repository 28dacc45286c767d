"""The process's one config, as components and trainers reach it."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym import global_config
from nemo_gym.config.errors import ConfigError, ConfigInterpolationError, ServerRefNotFoundError
from nemo_gym.config.handover import write_config
from nemo_gym.decorators import experimental
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_first_server_config_dict,
    get_global_config_dict,
    get_hf_token,
    maybe_get_global_config_dict,
    set_global_config_dict,
)
from nemo_gym.path_utils import aggregate_metrics_path_for, failures_path_for, materialized_path_for
from tests.unit.config.conftest import agent, composed, model, plain, resources

Overrides = Callable[..., None]


def test_it_is_parsed_once(command_line: Overrides) -> None:
    command_line("+x=1")
    first = get_global_config_dict()
    command_line("+x=2")
    assert get_global_config_dict(GlobalConfigDictParserConfig(offline=True)) is first
    assert maybe_get_global_config_dict() is first
    assert set_global_config_dict().x == 2
    assert get_global_config_dict().x == 2


def test_without_one_nothing_is_parsed_on_the_side(command_line: Overrides) -> None:
    command_line("not an override")
    assert maybe_get_global_config_dict() is None


def test_a_handed_over_config_is_taken_as_it_is(
    command_line: Overrides, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line("--flag of a component")
    write_config(project / "c", {"a": "${b}", "b": 1, "hf_token": "t"})
    monkeypatch.setenv("NEMO_GYM_CONFIG_FILE", str(project / "c"))
    assert get_global_config_dict() == {"a": 1, "b": 1, "hf_token": "t"}
    assert get_hf_token() == "t"


def test_yaml_handed_over_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "a: 1")
    assert get_global_config_dict() == {"a": 1}
    assert get_hf_token() is None


def test_a_config_set_by_a_component_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", OmegaConf.create({"a": 1}))
    assert get_global_config_dict() == {"a": 1}


def test_a_failed_parse_leaves_no_config(command_line: Overrides) -> None:
    command_line("+config_paths=[gone.yaml]")
    with pytest.raises(ConfigError):
        get_global_config_dict()
    assert maybe_get_global_config_dict() is None


def test_a_parser_of_ones_own_is_used(command_line: Overrides) -> None:
    class Mine(GlobalConfigDictParser):
        def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
            return OmegaConf.create({"mine": True})

    command_line()
    assert get_global_config_dict(global_config_dict_parser_cls=Mine) == {"mine": True}


def test_resolving_in_a_parser_gives_a_config_error(command_line: Overrides) -> None:
    class Mine(GlobalConfigDictParser):
        def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
            return DictConfig({"x": OmegaConf.create({"a": "${gone}"}).a})

    command_line()
    with pytest.raises(ConfigInterpolationError, match=r"a refers to `\$\{gone\}`"):
        get_global_config_dict(global_config_dict_parser_cls=Mine)


def test_another_source_for_the_command_line_is_heard() -> None:
    class Mine(GlobalConfigDictParser):
        def parse_global_config_dict_from_cli(self) -> DictConfig:
            return OmegaConf.create({"x": 1})

    assert Mine().parse(GlobalConfigDictParserConfig(offline=True)).x == 1


def test_an_error_of_another_source_is_passed_on() -> None:
    class Mine(GlobalConfigDictParser):
        def parse_global_config_dict_from_cli(self) -> DictConfig:
            raise ConfigError("no line")

    with pytest.raises(ConfigError, match="no line"):
        Mine().parse(GlobalConfigDictParserConfig(offline=True))


@pytest.fixture
def root_level() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.mark.usefixtures("root_level")
def test_verbose_travels_with_the_config(command_line: Overrides, monkeypatch: pytest.MonkeyPatch) -> None:
    command_line("+verbose=true")
    set_global_config_dict()
    assert logging.getLogger().level == logging.DEBUG
    logging.getLogger().setLevel(logging.WARNING)
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "verbose: true")
    maybe_get_global_config_dict()
    assert logging.getLogger().level == logging.DEBUG


def test_the_block_of_an_instance() -> None:
    config = composed({"tiny_env": resources(limit=3)})
    block = get_first_server_config_dict(config, "tiny_env")
    assert block.limit == 3
    block["limit"] = 4
    assert config.tiny_env.resources_servers.tiny.limit == 4
    with pytest.raises(ServerRefNotFoundError, match=r"no server `tiny_evn`\. Did you mean `tiny_env`"):
        get_first_server_config_dict(config, "tiny_evn")


def test_what_a_trainer_hands_in(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.yaml").write_text(
        json.dumps({"tiny_env": resources(), "a": agent(), "policy_model": model("vllm_model")})
    )
    initial = DictConfig(
        {
            "config_paths": ["a.yaml"],
            "policy_base_url": ["http://one/v1", "http://two/v1"],
            "policy_api_key": "dummy_key",
            "policy_model_name": "m",
            "default_host": "10.1.1.1",
            "port_range_low": 27000,
            "port_range_high": 27999,
            "head_server": {"host": "0.0.0.0", "port": 27100},
            "policy_model": {"responses_api_models": {"vllm_model": {"uses_reasoning_parser": True}}},
            "anything_of_the_trainers": {"x": [1]},
        },
        flags={"struct": True, "readonly": True},
    )
    monkeypatch.setattr("sys.argv", ["trainer.py", "--its", "own flags"])
    config = GlobalConfigDictParser().parse(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=initial, skip_load_from_cli=True, dotenv_path=project / "gone.yaml"
        )
    )
    assert config.policy_model.responses_api_models.vllm_model.uses_reasoning_parser is True
    assert config.policy_model.responses_api_models.vllm_model.entrypoint == "app.py"
    assert config.policy_base_url == ["http://one/v1", "http://two/v1"]
    assert 27000 <= config.a.responses_api_agents.simple_agent.port <= 27999
    assert config.anything_of_the_trainers == {"x": [1]}
    config.a.responses_api_agents.simple_agent.new_key = 1  # neither struct nor read-only
    assert "a" not in initial


def test_a_config_without_a_model_for_work_that_needs_none() -> None:
    stand_ins = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    config = {"tiny_env": resources(), "a": agent()}
    merged = OmegaConf.merge(stand_ins, config)
    assert isinstance(merged, DictConfig)
    assert "a" in GlobalConfigDictParser().parse_no_environment(merged)
    assert stand_ins == {
        "policy_base_url": "",
        "policy_api_key": "",
        "policy_model_name": "",
        "policy_model": {"responses_api_models": {"dummy_model": {"entrypoint": "app.py"}}},
    }


def test_parts_of_the_parser_that_others_call(project: Path) -> None:
    (project / "a.yaml").write_text("config_paths: [b.yaml]\na: '???'")
    (project / "b.yaml").write_text("b: 1")
    parser = GlobalConfigDictParser()
    paths, configs = parser.load_extra_config_paths(["a.yaml"])
    assert paths == ["a.yaml", "b.yaml"]
    assert [plain(config) for config in configs] == [{"b": 1}, {"config_paths": ["b.yaml"], "a": "???"}]
    config = OmegaConf.create({"a": {"x": ["???"]}})
    assert parser.collect_missing_value_paths(config) == ["a.x[0]"]
    with pytest.raises(ConfigError, match=r"a\.x\[0\]"):
        parser.raise_on_missing_values(config)
    with pytest.raises(ConfigError, match="domain"):
        parser.detect_and_report_almost_servers(OmegaConf.create({"r": resources(domain="x")}))
    pairing = OmegaConf.create(
        {"tiny_env": resources(allowed_model_types="x"), "a": agent(), "policy_model": model("y")}
    )
    with pytest.raises(ConfigError, match="--model-type x"):
        parser.raise_on_unsupported_model_pairings(pairing)
    legacy = OmegaConf.create({"hermes_reasoning_gym_agent": agent()})
    parser.apply_legacy_agent_aliases(legacy)
    assert legacy.agent_map == {"reasoning_gym_hermes_agent": "hermes_reasoning_gym_agent"}


def test_key_names_are_importable_from_the_front_door() -> None:
    names = [name for name in global_config.__all__ if name.endswith("KEY_NAME")]
    values: list[Any] = [getattr(global_config, name) for name in names]
    assert set(global_config.NEMO_GYM_RESERVED_TOP_LEVEL_KEYS) <= {*values}
    assert (global_config.TASK_INDEX_KEY_NAME, global_config.DEFAULT_HEAD_SERVER_PORT) == ("_ng_task_index", 11000)
    assert global_config.TOKEN_ID_CAPTURE_BLOCK == "token_id_capture"


def test_files_beside_a_rollouts_file() -> None:
    output = Path("results/x.jsonl")
    assert failures_path_for(output) == Path("results/x_failures.jsonl")
    assert materialized_path_for(output) == Path("results/x_materialized_inputs.jsonl")
    assert aggregate_metrics_path_for(output) == Path("results/x_aggregate_metrics.json")


def test_experimental_functions_say_so_at_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    @experimental
    def twice(number: int) -> int:
        return 2 * number

    assert (twice(2), twice(3)) == (4, 6)
    assert capsys.readouterr().err.count("twice is experimental") == 2
