"""Environment servers and the relays that are only other names of agents."""

from typing import Any

import pytest

from nemo_gym.config.environment_servers import (
    environment_server_agent_names,
    environment_server_attributed_agent,
    environment_servers_by_agent,
)
from nemo_gym.config.errors import AgentWithoutEnvironmentServerError, ConfigError
from nemo_gym.config.instances import server_instances
from tests.unit.config.conftest import agent, composed, model, resources


def reference(name: str) -> dict[str, str]:
    return {"type": "responses_api_agents", "name": name}


def front(name: str = "tiny_agent", kind: str = "legacy_agent", **fields: Any) -> dict[str, Any]:
    return {"environment_servers": {kind: {"entrypoint": "app.py", "agent_server": reference(name), **fields}}}


def tiny(**others: Any) -> dict[str, Any]:
    return {"tiny_env": resources(), "tiny_agent": agent(), "policy_model": model(), **others}


def test_agents_of_an_environment_server() -> None:
    block = {"agent_server": {"name": "a"}, "second": reference("b"), "other": {"type": "x", "name": "c"}, "n": 1}
    assert environment_server_agent_names(block) == ["a", "b"]
    assert environment_server_attributed_agent(block) == "a"
    assert environment_server_attributed_agent({"one": reference("b")}) == "b"
    assert environment_server_attributed_agent({"one": reference("b"), "two": reference("c")}) is None


def test_environment_servers_by_agent() -> None:
    assert environment_servers_by_agent({"x": front("a"), "y": front("a", "real")}) == {"a": ["x", "y"]}


def test_an_agent_that_nobody_fronts_gets_a_relay_at_the_end_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    config = composed(tiny())
    relay = config.tiny_environment_server.environment_servers.legacy_agent
    assert relay.agent_server == reference("tiny_agent")
    assert capsys.readouterr().err == ""


def test_a_relay_has_the_address_of_its_agent_and_is_known_as_an_alias() -> None:
    config = composed(tiny(default_host="10.0.0.1"), offline=False)
    by_name = {instance.name: instance for instance in server_instances(config)}
    relay, fronted = by_name["tiny_environment_server"], by_name["tiny_agent"]
    assert (relay.host, relay.port) == (fronted.host, fronted.port)
    assert (relay.is_alias, relay.alias_of) == (True, "tiny_agent")
    assert (fronted.is_alias, fronted.alias_of) == (False, None)
    assert list(config.disallowed_ports) == [
        11000,
        *(by_name[name].port for name in ("tiny_env", "tiny_agent", "policy_model")),
    ]


def test_a_relay_that_is_written_down_is_an_alias_too_whatever_port_it_asks_for() -> None:
    config = composed(tiny(relay=front(port=12345), tiny_agent=agent(port=12000)))
    assert config.relay.environment_servers.legacy_agent.port == 12000
    assert "tiny_environment_server" not in config


def test_a_real_environment_server_has_its_own_address_and_its_agent_no_relay() -> None:
    config = composed(tiny(real=front(kind="single_agent_turn")), offline=False)
    assert "tiny_environment_server" not in config
    instance = next(instance for instance in server_instances(config) if instance.name == "real")
    assert not instance.is_alias
    assert instance.port != config.tiny_agent.responses_api_agents.simple_agent.port


def test_a_relay_found_through_an_interpolation_counts() -> None:
    config = composed(tiny(who=reference("tiny_agent"), relay=front()))
    block = {"entrypoint": "app.py", "agent_server": "${who}"}
    config = composed(tiny(who=reference("tiny_agent"), relay={"environment_servers": {"legacy_agent": block}}))
    assert "tiny_environment_server" not in config
    relay = next(instance for instance in server_instances(config) if instance.name == "relay")
    assert relay.alias_of == "tiny_agent"


def test_names_that_are_taken_are_avoided() -> None:
    config = composed(tiny(tiny_environment_server={"x": 1}, tiny_agent_environment_server={"x": 1}))
    assert "tiny_agent_environment_server_2" in config


def test_two_agents_with_one_stem_get_two_relays() -> None:
    config = composed(tiny(tiny_simple_agent=agent()))
    relays = [instance.alias_of for instance in server_instances(config) if instance.is_alias]
    assert relays == ["tiny_agent", "tiny_simple_agent"]


def test_an_agent_named_like_its_kind_keeps_its_name_in_the_relay() -> None:
    assert "simple_agent_environment_server" in composed({**tiny(), "simple_agent": agent()})


def test_relays_may_be_forbidden() -> None:
    with pytest.raises(AgentWithoutEnvironmentServerError) as caught:
        composed(tiny(error_on_agent_without_environment_server=True))
    assert "tiny_environment_server:\n  environment_servers:\n    legacy_agent:" in str(caught.value)


def test_a_relay_to_nobody_is_an_error() -> None:
    config = tiny(relay={"environment_servers": {"legacy_agent": {"entrypoint": "app.py"}}})
    with pytest.raises(ConfigError, match="`relay` relays to no agent"):
        composed(config)
