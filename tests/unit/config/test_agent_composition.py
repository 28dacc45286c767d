"""`--agent-type`: one harness in place of another."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym.config.errors import (
    AgentCompositionError,
    ConfigMissingValuesError,
    UnsupportedAgentOverrideError,
    UnsupportedAgentPairingError,
)
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
from tests.unit.config.conftest import agent, composed, model, parser_and_config, plain, resources

DATASETS = [{"name": "example", "type": "example", "jsonl_fpath": "data/example.jsonl"}]


def unbound(kind: str = "harness", **fields: Any) -> dict[str, Any]:
    return agent(kind, serves="???", **fields)


def environment(**others: Any) -> dict[str, Any]:
    """A resources server with a simple agent, a model, and a harness that waits for a resources server."""
    return {
        "tiny_env": resources(),
        "tiny_simple_agent": agent(datasets=DATASETS, max_steps=4),
        "policy_model": model(),
        "harness": unbound(depth=7),
        **others,
    }


def with_overrides(config: dict[str, Any], *overrides: str) -> DictConfig:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gym", *overrides])
        options = GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.create(config), skip_load_from_dotenv=True, offline=True
        )
        return GlobalConfigDictParser().parse(options)


def test_the_harness_takes_over_with_the_bindings_and_data_sets_of_the_agent() -> None:
    config = plain(composed(environment()))
    assert [key for key in config if key in ("tiny_env", "tiny_harness", "tiny_simple_agent", "harness")] == [
        "tiny_env",
        "tiny_harness",
    ]
    block = config["tiny_harness"]["responses_api_agents"]["harness"]
    assert block["resources_server"] == {"type": "resources_servers", "name": "tiny_env"}
    assert block["datasets"] == DATASETS
    assert block["depth"] == 7
    assert "max_steps" not in block


def test_rows_stamped_before_find_the_new_agent_and_a_users_route_wins() -> None:
    config = composed(environment(agent_map={"other": "tiny_harness"}))
    assert config.agent_map == {"tiny_simple_agent": "tiny_harness", "other": "tiny_harness"}
    config = composed(environment(agent_map={"tiny_simple_agent": "elsewhere"}))
    assert config.agent_map == {"tiny_simple_agent": "elsewhere"}


def test_environment_servers_follow_the_new_name() -> None:
    reference = {"type": "responses_api_agents", "name": "tiny_simple_agent"}
    relay = {"environment_servers": {"legacy_agent": {"entrypoint": "app.py", "agent_server": reference}}}
    config = composed(environment(front=relay))
    assert config.front.environment_servers.legacy_agent.agent_server.name == "tiny_harness"
    assert "tiny_environment_server" not in config


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("mcqa_simple_agent", "simple_agent", "mcqa_harness"),
        ("mcqa_agent", "simple_agent", "mcqa_harness"),
        ("simple_agent", "simple_agent", "harness"),
        ("mcqa", "simple_agent", "mcqa_harness"),
        ("mcqa_harness", "harness", "mcqa_harness"),
    ],
)
def test_names_are_made_of_what_the_old_name_said_beside_the_kind(name: str, kind: str, expected: str) -> None:
    config = environment()
    config[name] = agent(kind)
    del config["tiny_simple_agent"]
    assert expected in composed(config)


def test_every_bound_agent_is_taken_over_but_self_contained_ones_are_not() -> None:
    config = composed(environment(other_agent=agent(serves="tiny_env"), alone_agent=agent("alone", serves=None)))
    assert {name for name in config if "responses_api_agents" in str(config[name])} >= {
        "tiny_harness",
        "other_harness",
        "alone_agent",
    }
    assert "other_agent" not in config


def test_nothing_happens_without_an_unbound_agent() -> None:
    config = environment()
    del config["harness"]
    assert "tiny_simple_agent" in composed(config)
    assert "agent_map" not in composed(config)


def test_two_unbound_agents_are_one_too_many() -> None:
    with pytest.raises(AgentCompositionError, match="`harness` and `second` all wait"):
        composed(environment(second=unbound("second")))


def test_an_unbound_agent_needs_something_to_take_over() -> None:
    with pytest.raises(AgentCompositionError, match="--resources-server"):
        composed({"harness": unbound(), "policy_model": model()})


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(AgentCompositionError, match="`tiny_simple_agent` would become `tiny_harness`"):
        composed(environment(tiny_harness={"scratch": 1}))


def test_two_agents_must_not_get_the_same_name() -> None:
    with pytest.raises(AgentCompositionError, match="a name that is taken"):
        composed(environment(tiny_agent=agent()))


@pytest.mark.parametrize(
    "routing",
    [
        {"agent_name": "tiny_simple_agent"},
        {"agent_map": {"_default": "harness"}},
        {"fan_out": {"tiny_env": ["tiny_simple_agent"]}},
    ],
)
def test_settings_that_name_a_vanished_agent_are_refused(routing: dict[str, Any]) -> None:
    with pytest.raises(AgentCompositionError, match="`tiny_harness`"):
        composed(environment(**routing))


def test_the_resources_server_must_allow_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    config = environment(
        tiny_env=resources(allowed_agents=["a", "b"]),
        other_env=resources(allowed_agents="b"),
        other_simple_agent=agent(serves="other_env"),
    )
    with pytest.raises(UnsupportedAgentPairingError) as caught:
        composed(config)
    assert "`tiny_simple_agent` and `other_simple_agent`" in str(caught.value)
    assert "use one of: b, or" in str(caught.value)
    assert "tiny_harness" in composed({**config, "allow_unsupported_pairing": True})
    monkeypatch.setenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", "false")
    with pytest.raises(UnsupportedAgentPairingError):
        composed(config)
    monkeypatch.setenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", "1")
    assert "tiny_harness" in composed(config)


def test_an_unbound_model_server_is_carried_as_unbound() -> None:
    config = environment()
    config["tiny_simple_agent"]["responses_api_agents"]["simple_agent"]["model_server"]["name"] = "???"
    with pytest.raises(ConfigMissingValuesError, match=r"tiny_harness\..*\.model_server\.name") as caught:
        composed(config)
    assert caught.value.problems == ()


def test_data_sets_come_with_the_agent_only() -> None:
    config = environment(harness=unbound(datasets=DATASETS))
    del config["tiny_simple_agent"]["responses_api_agents"]["simple_agent"]["datasets"]
    assert "datasets" not in composed(config).tiny_harness.responses_api_agents.harness


def test_origins_follow_what_came_from_where(project: Path) -> None:
    entries = environment()
    (project / "harness.yaml").write_text(json.dumps({"harness": entries.pop("harness")}))
    (project / "env.json").write_text(json.dumps(entries))
    parser, _ = parser_and_config("+config_paths=[env.json,harness.yaml]")
    block = ("tiny_harness", "responses_api_agents", "harness")
    assert [parser.origins.of((*block, field)) for field in ("depth", "datasets", "resources_server", "max_steps")] == [
        "harness.yaml",
        "env.json",
        "env.json",
        None,
    ]
    assert parser.origins.of(("tiny_simple_agent",)) is None


def test_overrides_of_the_new_agent_are_applied_to_it() -> None:
    config = with_overrides(environment(), "++tiny_harness.responses_api_agents.harness.depth=9")
    assert config.tiny_harness.responses_api_agents.harness.depth == 9
    assert config.tiny_harness.responses_api_agents.harness.resources_server.name == "tiny_env"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("++tiny_harness.responses_api_agents.harness.dept=9", "no field `dept` to override. Did you mean `depth`"),
        ("++tiny_harness.responses_api_agents.simple_agent.depth=9", "doesn't fit"),
        ("++tiny_simple_agent.responses_api_agents.simple_agent.max_steps=9", "made `tiny_harness`"),
        ("++tiny_hrness.responses_api_agents.harness.depth=9", "made `tiny_harness`"),
    ],
)
def test_overrides_that_would_be_lost_are_refused(override: str, said: str) -> None:
    with pytest.raises(UnsupportedAgentOverrideError, match=said):
        with_overrides(environment(), override)


def test_bindings_of_the_old_agent_may_still_be_overridden() -> None:
    config = with_overrides(
        environment(other=model("other_model")),
        "++tiny_simple_agent.responses_api_agents.simple_agent.model_server.name=other",
    )
    assert config.tiny_harness.responses_api_agents.harness.model_server.name == "other"


def test_the_harness_itself_may_be_overridden_before() -> None:
    config = with_overrides(environment(), "++harness.responses_api_agents.harness.depth=9")
    assert config.tiny_harness.responses_api_agents.harness.depth == 9


def test_the_parser_composes_in_place() -> None:
    config = OmegaConf.create(environment())
    GlobalConfigDictParser().compose_unbound_agent(config)
    assert "tiny_harness" in config and "harness" not in config


def test_legacy_agent_names_are_routed(capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "tiny_env": resources(),
        "policy_model": model(),
        "hermes_reasoning_gym_agent": agent("hermes_agent"),
        "agent_name": "reasoning_gym_hermes_agent",
        "fan_out": {"x": ["reasoning_gym_hermes_agent", "y"]},
    }
    result = composed(config)
    assert result.agent_name == "hermes_reasoning_gym_agent"
    assert result.agent_map == {"reasoning_gym_hermes_agent": "hermes_reasoning_gym_agent"}
    assert result.fan_out == {"x": ["hermes_reasoning_gym_agent", "y"]}
    assert "now called `hermes_reasoning_gym_agent`" in capsys.readouterr().err


def test_an_agent_that_has_an_older_name_of_its_own_is_left_alone() -> None:
    agents = {"hermes_reasoning_gym_agent": agent("hermes_agent"), "reasoning_gym_hermes_agent": agent()}
    assert "agent_map" not in composed({"tiny_env": resources(), "policy_model": model(), **agents})


def test_legacy_agent_names_that_nobody_uses_are_not_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    composed({"tiny_env": resources(), "policy_model": model(), "hermes_reasoning_gym_agent": agent("hermes_agent")})
    assert "now called" not in capsys.readouterr().err
