"""What a config says about the launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.launch.restarts import DEFAULT_RESTARTS
from nemo_gym.launch.settings import LaunchSettings
from nemo_gym.launch.sockets import PortRange


def test_defaults() -> None:
    settings = LaunchSettings.from_config({})
    assert (settings.head_host, settings.head_port) == ("127.0.0.1", 11000)
    assert (settings.spinup_seconds, settings.endpoint_seconds) == (600.0, 600.0)
    assert settings.ports == PortRange(10001, 20000)
    assert (settings.dry_run, settings.log_dir, settings.uv_variables) == (False, None, {})


def test_what_is_said_counts() -> None:
    """B109: the band that ports come from is one setting."""
    settings = LaunchSettings.from_config(
        {
            "head_server": {"host": "0.0.0.0", "port": 1},
            "port_range_low": 5,
            "port_range_high": 6,
            "nemo_gym_log_dir": "~/logs",
            "dry_run": True,
            "uv_cache_dir": "/c",
            "uv_lock_timeout_seconds": 3,
        }
    )
    assert (settings.head_host, settings.head_port, settings.dry_run) == ("0.0.0.0", 1, True)
    assert settings.ports == PortRange(5, 6)
    assert settings.log_dir == Path.home() / "logs"
    assert settings.uv_variables == {"UV_CACHE_DIR": "/c", "UV_LOCK_TIMEOUT": "3"}


@pytest.mark.parametrize(
    ("value", "spinup", "endpoint"), [(None, 600.0, 600.0), ("2.5", 2.5, 2.5), (0, None, 0), (-1, None, 0)]
)
def test_timeouts(value: Any, spinup: float | None, endpoint: float) -> None:
    keys = ("server_spinup_timeout_seconds", "model_endpoint_readiness_timeout_seconds")
    settings = LaunchSettings.from_config(dict.fromkeys(keys, value))
    assert (settings.spinup_seconds, settings.endpoint_seconds) == (spinup, endpoint)


@pytest.mark.parametrize("value", ["soon", True, [1]])
def test_a_timeout_that_is_no_number_is_one_sentence(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"server_spinup_timeout_seconds is .*: it must be a number of seconds"):
        LaunchSettings.from_config({"server_spinup_timeout_seconds": value})


def test_servers_that_are_actors_are_started_again_by_whoever_starts_them() -> None:
    """To survive the loss of a node is what the placement is for, in a trainer too."""
    assert LaunchSettings.from_config({}).restarts == 0
    assert LaunchSettings.from_config({"placement": "ray"}).restarts == DEFAULT_RESTARTS
    assert LaunchSettings.from_config({"placement": "ray", "server_restarts": 0}).restarts == 0


def test_how_long_a_server_may_be_held_is_a_number_of_seconds() -> None:
    assert LaunchSettings.from_config({}).stuck_seconds == 300
    assert LaunchSettings.from_config({"server_stuck_timeout_s": 0}).stuck_seconds == 0
    with pytest.raises(ConfigError, match=r"server_stuck_timeout_s is 'soon': .* as in \+server_stuck_timeout_s=600"):
        LaunchSettings.from_config({"server_stuck_timeout_s": "soon"})
