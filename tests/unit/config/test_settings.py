"""Ports, hosts and the settings that are always there."""

import os
import platform
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import server_instances
from nemo_gym.config.ports import PortRange, chosen_ports, find_free_port
from nemo_gym.config.roots import WORKING_DIR
from nemo_gym.global_config import GlobalConfigDictParser, find_open_port, set_global_config_dict
from tests.unit.config.conftest import agent, composed, model, resources


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


def ports(config: Any) -> dict[str, int]:
    return {instance.name: instance.port for instance in server_instances(config)}


def test_servers_get_different_ports_of_the_range_and_the_default_host() -> None:
    servers = {f"r{number}": resources() for number in range(5)}
    config = composed({**servers, "port_range_low": 21000, "port_range_high": 21020}, offline=False)
    chosen = ports(config)
    assert len(set(chosen.values())) == 5
    assert all(21000 <= port <= 21020 for port in chosen.values())
    assert list(config.disallowed_ports) == [11000, *chosen.values()]
    assert {instance.host for instance in server_instances(config)} == {"127.0.0.1"}
    assert set(chosen.values()) <= chosen_ports


def test_explicit_ports_are_kept_and_kept_clear_of() -> None:
    config = composed(
        {"a": resources(), "b": resources(port=22001), "port_range_low": 22000, "port_range_high": 22001}, offline=False
    )
    assert ports(config) == {"a": 22000, "b": 22001}
    assert 22001 not in chosen_ports


def test_ports_given_out_before_are_not_given_again() -> None:
    config = composed(
        {"a": resources(), "disallowed_ports": [23000, 23001], "port_range_low": 23000, "port_range_high": 23002},
        offline=False,
    )
    assert list(config.disallowed_ports) == [11000, 23000, 23001, 23002]


def test_a_port_somebody_listens_on_is_not_chosen(busy_port: int) -> None:
    with pytest.raises(RuntimeError, match="No free port"):
        find_free_port(PortRange(busy_port, busy_port), [])


def test_a_range_that_is_too_small_for_the_servers_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="No port is left between 24000 and 24000"):
        composed({"a": resources(), "b": resources(), "port_range_low": 24000, "port_range_high": 24000}, offline=False)


def test_a_range_without_a_port_left_ends_at_once() -> None:
    with pytest.raises(RuntimeError, match="No port is left between 24000 and 24001"):
        find_free_port(PortRange(24000, 24001), [24000, 24001])


@pytest.mark.parametrize(
    "servers",
    [
        {"a": resources(port=5000), "b": resources(port=5000)},
        {"a": resources(port=5000, host="0.0.0.0"), "b": resources(port=5000, host="10.0.0.1")},
        {"a": resources(port=5000, host="localhost"), "b": resources(port=5000)},
        {"a": resources(port=11000)},
        {"a": resources(port=5001), "head_server": {"port": 5001}},
    ],
)
def test_two_servers_with_one_port_are_refused(servers: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="both have port"):
        composed(servers)


def test_one_port_on_two_hosts_is_fine() -> None:
    servers = {"a": resources(port=5000, host="10.0.0.1"), "b": resources(port=5000, host="10.0.0.2")}
    assert ports(composed(servers)) == {"a": 5000, "b": 5000}


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_port_must_be_one(port: int) -> None:
    with pytest.raises(ConfigError, match="The port of `a` must be a number from 1 to 65535"):
        composed({"a": resources(port=port)})


@pytest.mark.parametrize(("low", "high"), [(20, 10), (0, 10), (1, 70000), ("a", 10)])
def test_the_port_range_must_be_one(low: Any, high: Any) -> None:
    with pytest.raises(ConfigError, match="port_range_low and port_range_high"):
        composed({"port_range_low": low, "port_range_high": high})


def test_offline_nothing_is_probed_or_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "gethostname", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    config = composed({"a": resources(), "use_absolute_ip": True})
    assert ports(config) == {"a": -1}
    assert config.a.resources_servers.tiny.host == "127.0.0.1"
    assert list(config.disallowed_ports) == [11000]
    assert os.environ["UV_CACHE_DIR"] == "unset by the test"


def test_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """B108: what other nodes are told is set apart from what is bound."""
    config = composed({"a": resources(), "b": resources(host="h"), "default_host": "d", "head_server": {"port": 7}})
    assert [instance.host for instance in server_instances(config)] == ["d", "h"]
    assert config.head_server == {"host": "d", "port": 7}
    monkeypatch.setattr(socket, "gethostbyname", lambda name: f"ip of {name}")
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    config = composed({"a": resources(), "use_absolute_ip": True, "head_server": {"host": "0.0.0.0"}}, offline=False)
    assert config.a.resources_servers.tiny.host == "ip of me"
    assert config.head_server == {"host": "0.0.0.0", "port": 11000}


def test_a_head_server_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="head_server must hold host and port"):
        composed({"head_server": "localhost:11000"})


def test_agents_inherit_skip_verification_unless_they_say_otherwise() -> None:
    config = composed(
        {
            "tiny_env": resources(),
            "policy_model": model(),
            "a": agent(),
            "b": agent(skip_verification=False),
            "skip_verification": True,
            "skip_verification_reward": 0.5,
        }
    )
    assert config.a.responses_api_agents.simple_agent.skip_verification is True
    assert config.a.responses_api_agents.simple_agent.skip_verification_reward == 0.5
    assert config.b.responses_api_agents.simple_agent.skip_verification is False
    assert "skip_verification" not in config.tiny_env.resources_servers.tiny


def test_defaults_that_are_always_set() -> None:
    config = composed({})
    assert (config.skip_venv_if_present, config.dry_run, config.use_absolute_ip) == (False, False, False)
    assert (config.server_spinup_timeout_seconds, config.model_endpoint_readiness_timeout_seconds) == (600, 600)
    assert config.results_dir == str(WORKING_DIR / "results")
    assert config.cache_dir == str(WORKING_DIR / "cache")
    assert config.uv_cache_dir == str(WORKING_DIR / "cache" / "uv")
    assert config.uv_venv_dir == str(WORKING_DIR)
    assert config.head_server_deps == [
        f"ray[default]=={metadata.version('ray')}",
        f"openai=={metadata.version('openai')}",
    ]


def test_folders_become_absolute(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    config = composed({"cache_dir": "c", "results_dir": "~/r", "uv_venv_dir": "/v"})
    assert config.cache_dir == str(project / "c")
    assert config.uv_cache_dir == str(project / "c" / "uv")
    assert config.results_dir == "/home/somebody/r"
    assert config.uv_venv_dir == "/v"


@pytest.mark.parametrize("value", ["", "  ", 3, ["a"]])
def test_folders_must_be_paths(value: Any) -> None:
    with pytest.raises(ConfigError, match="results_dir must be the path of a folder"):
        composed({"results_dir": value})


def test_uv_is_told_unless_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    composed({"cache_dir": "/c"}, offline=False)
    assert (os.environ["UV_CACHE_DIR"], os.environ["UV_LOCK_TIMEOUT"]) == ("/c/uv", "1800")
    monkeypatch.setenv("UV_LOCK_TIMEOUT", "77")
    assert composed({}, offline=False).uv_lock_timeout_seconds == 77
    monkeypatch.setenv("UV_LOCK_TIMEOUT", "soon")
    assert composed({}).uv_lock_timeout_seconds == 1800
    monkeypatch.delenv("UV_LOCK_TIMEOUT")
    assert composed({"uv_lock_timeout_seconds": None}, offline=False).uv_lock_timeout_seconds is None
    assert "UV_LOCK_TIMEOUT" not in os.environ


@pytest.mark.parametrize("key", ["server_spinup_timeout_seconds", "model_endpoint_readiness_timeout_seconds"])
def test_timeouts_must_be_numbers(key: str) -> None:
    assert composed({key: 0.5})[key] == 0.5
    with pytest.raises(ConfigError, match=f"{key} must be a number of seconds, not True"):
        composed({key: True})


@pytest.mark.parametrize("folder", [{}, {"model_call_capture_dir": "calls"}, {"model_call_capture_dir": 3}])
def test_recording_model_calls_needs_an_absolute_folder(folder: dict[str, Any], tmp_path: Path) -> None:
    """Said before anything starts; a model server would end on it."""
    recorded = {"observability_enabled": True, **folder}
    with pytest.raises(ConfigError, match="observability_enabled needs model_call_capture_dir, the absolute path"):
        composed({"policy_model": model(), **recorded})
    composed({"policy_model": model(), **recorded, "observability_enabled": False})
    composed({"policy_model": model(), **recorded, "model_call_capture_dir": str(tmp_path)})
    composed({"a": resources(), **recorded})


def test_another_python_is_not_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert composed({"python_version": "2.7"}).python_version == platform.python_version()
    assert "python_version=2.7 is ignored" in capsys.readouterr().err
    composed({"python_version": platform.python_version()})
    assert capsys.readouterr().err == ""


def test_openai_is_pinned_only_in_a_version_gym_asks_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B27: both versions are named before anything is built, and skew may be allowed."""
    monkeypatch.setattr(metadata, "version", lambda name: {"ray": "2.50", "openai": "1.0"}[name])
    monkeypatch.setattr(metadata, "requires", lambda _: ["openai>=2.44,<3", 'openai; extra == "x"'])
    with pytest.raises(ConfigError, match=r"openai 1\.0 is installed, but Gym needs openai<3,>=2\.44"):
        composed({})
    assert composed({"allow_openai_version_skew": True}).head_server_deps == ["ray[default]==2.50"]
    assert "openai 1.0 is installed" in capsys.readouterr().err
    monkeypatch.setattr(metadata, "requires", lambda _: None)
    assert composed({}).head_server_deps == ["ray[default]==2.50", "openai==1.0"]


def test_allow_openai_version_skew_must_be_a_switch() -> None:
    with pytest.raises(ConfigError, match="allow_openai_version_skew must be true or false, not 1"):
        composed({"allow_openai_version_skew": 1})


def test_find_open_port_uses_the_configured_range(command_line: Any) -> None:
    command_line("+port_range_low=25000", "+port_range_high=25001")
    set_global_config_dict()
    assert find_open_port([25000]) == 25001
    with pytest.raises(RuntimeError):
        find_open_port(disallowed_ports=[25000, 25001], max_retries=3)


def test_the_parser_gives_addresses_to_instances() -> None:
    config = composed({"a": resources(), "b": resources(port=26001), "c": resources(host="h")})
    parser = GlobalConfigDictParser()
    for name in "ac":
        del config[name].resources_servers.tiny["port"]
    taken = parser.validate_and_populate_defaults(
        parser.filter_for_server_instance_configs(config), "x", 26000, 26003, initial_disallowed_ports=[26000]
    )
    assert taken == [26000, *ports(config).values()]
    assert set(taken) == {26000, 26001, 26002, 26003}
    assert [instance.host for instance in server_instances(config)] == ["127.0.0.1", "127.0.0.1", "h"]


def test_ports_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PORT", "28000")
    from_environment = "${oc.env:A_PORT}"
    config = composed({"a": resources(port=from_environment, host="x"), "head_server": {"port": from_environment}})
    assert config.head_server.port == 28000
    assert ports(config)["a"] == 28000
    with pytest.raises(ConfigError, match="`a` and `b` both have port 28000"):
        composed({"a": resources(port=from_environment), "b": resources(port=28000)})
