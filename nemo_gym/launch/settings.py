"""What a config says about the launch itself, read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import (
    DEFAULT_HEAD_SERVER_PORT,
    DEFAULT_HOST,
    DEFAULT_PORT_RANGE_HIGH,
    DEFAULT_PORT_RANGE_LOW,
    DRY_RUN_KEY_NAME,
    HEAD_SERVER_KEY_NAME,
    MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME,
    NEMO_GYM_LOG_DIR_KEY_NAME,
    PORT_RANGE_HIGH_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    SERVER_RESTARTS_KEY_NAME,
    SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME,
    SERVER_STUCK_TIMEOUT_S_KEY_NAME,
    UV_CACHE_DIR_KEY_NAME,
    UV_LOCK_TIMEOUT_SECONDS_KEY_NAME,
)
from nemo_gym.config.placement import Mode, Placement
from nemo_gym.launch.held import DEFAULT_SECONDS as DEFAULT_STUCK_SECONDS
from nemo_gym.launch.restarts import DEFAULT_RESTARTS
from nemo_gym.launch.sockets import PortRange
from nemo_gym.serve.stages import stage_seconds

DEFAULT_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True)
class LaunchSettings:
    """`spinup_seconds` is None for no limit; `endpoint_seconds` is 0 when nothing is waited for, `stuck_seconds` where
    servers may be at one thing for ever."""

    head_host: str
    head_port: int
    ports: PortRange
    dry_run: bool
    spinup_seconds: float | None
    endpoint_seconds: float
    log_dir: Path | None
    uv_variables: dict[str, str]
    placement: Placement = field(default_factory=Placement)
    restarts: int = 0
    stuck_seconds: float = DEFAULT_STUCK_SECONDS

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, placement: Mode = "process", restarts: int = 0
    ) -> LaunchSettings:
        """`placement` and `restarts` are what holds where the config says nothing; actors are always started again.

        Raises ConfigError for a value that isn't what its key needs.
        """
        head = config.get(HEAD_SERVER_KEY_NAME) or {}
        stage_seconds(config)  # read by the servers, refused here
        spinup = _seconds(config, SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME)
        log_dir = config.get(NEMO_GYM_LOG_DIR_KEY_NAME)
        placed = Placement.from_config(config, placement)
        if placed.mode == "ray":
            restarts = max(restarts, DEFAULT_RESTARTS)  # to survive the loss of a node is what it is for
        return cls(
            head_host=str(head.get("host") or DEFAULT_HOST),
            head_port=int(head.get("port") or DEFAULT_HEAD_SERVER_PORT),
            ports=PortRange(
                int(config.get(PORT_RANGE_LOW_KEY_NAME) or DEFAULT_PORT_RANGE_LOW),
                int(config.get(PORT_RANGE_HIGH_KEY_NAME) or DEFAULT_PORT_RANGE_HIGH),
            ),
            dry_run=bool(config.get(DRY_RUN_KEY_NAME)),
            spinup_seconds=spinup if spinup > 0 else None,
            endpoint_seconds=max(0.0, _seconds(config, MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME)),
            log_dir=Path(str(log_dir)).expanduser().absolute() if log_dir else None,
            uv_variables=_uv_variables(config),
            placement=placed,
            restarts=_restarts(config, restarts),
            stuck_seconds=max(0.0, _seconds(config, SERVER_STUCK_TIMEOUT_S_KEY_NAME, DEFAULT_STUCK_SECONDS)),
        )


def _seconds(config: Mapping[str, Any], key: str, default: float = DEFAULT_TIMEOUT_SECONDS) -> float:
    value = config.get(key)
    if value is None:
        return default
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{key} is {value!r}: it must be a number of seconds, as in +{key}=600.") from None


def _restarts(config: Mapping[str, Any], default: int) -> int:
    value = config.get(SERVER_RESTARTS_KEY_NAME)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(
            f"{SERVER_RESTARTS_KEY_NAME} is {value!r}: it must be how often a server that ends by itself may be "
            f"started again within ten minutes, as in +{SERVER_RESTARTS_KEY_NAME}=3 (0: the run ends with it)."
        )
    return value


def _uv_variables(config: Mapping[str, Any]) -> dict[str, str]:
    named = {
        "UV_CACHE_DIR": config.get(UV_CACHE_DIR_KEY_NAME),
        "UV_LOCK_TIMEOUT": config.get(UV_LOCK_TIMEOUT_SECONDS_KEY_NAME),
    }
    return {name: str(value) for name, value in named.items() if value is not None}
