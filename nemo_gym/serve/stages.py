"""The stages of a rollout, and of a run, each a kind of call to another server, and how long each may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import ENVIRONMENT_SERVERS, RESOURCES_SERVERS, RESPONSES_API_AGENTS, RESPONSES_API_MODELS
from nemo_gym.schema.failure_kinds import TRANSPORT_TIMEOUT, VERIFIER_ERROR
from nemo_gym.serve.deadline import DeadlineExceededError

if TYPE_CHECKING:
    from aiohttp import ClientTimeout

HOUR = 3600.0


@dataclass(frozen=True)
class Stage:
    """`key` of the global config sets its seconds; 0 or null there is no limit.

    `code` is what programs call it, `failure_kind` the registered kind of its taking too long.
    """

    name: str
    key: str
    seconds: float
    code: str
    failure_kind: str = TRANSPORT_TIMEOUT


SEED = Stage("seeding the session", "seed_timeout_s", HOUR / 2, "seed")
MODEL_CALL = Stage("the model call", "model_call_timeout_s", 2 * HOUR, "model")
TOOL_CALL = Stage("the tool call", "tool_call_timeout_s", HOUR, "tool")
VERIFY = Stage("verifying", "verify_timeout_s", 2 * HOUR, "verify", VERIFIER_ERROR)
METRICS = Stage("computing the metrics", "aggregate_timeout_s", HOUR, "metrics")
STAGES = (SEED, MODEL_CALL, TOOL_CALL, VERIFY, METRICS)

_SEEDING = ("/seed_session", "/reset")
_NO_TOOLS = frozenset({"/close_session", "/close", "/reverify_mode", "/stats"})
_WITH_METRICS = frozenset({RESOURCES_SERVERS, RESPONSES_API_AGENTS, ENVIRONMENT_SERVERS})


def stage_of(server_type: str | None, url_path: str) -> Stage | None:
    """The stage a POST belongs to; None for whole rollouts, closing and servers that aren't known."""
    if url_path == "/aggregate_metrics":
        return METRICS if server_type in _WITH_METRICS else None
    if server_type == RESPONSES_API_MODELS:
        return MODEL_CALL
    if server_type == RESOURCES_SERVERS:
        if url_path.endswith(_SEEDING):
            return SEED
        if url_path.endswith("/verify"):
            return VERIFY
        return None if url_path in _NO_TOOLS else TOOL_CALL
    return SEED if server_type == RESPONSES_API_AGENTS and url_path == "/v1/agent_sessions" else None


class StageTimeoutError(DeadlineExceededError):
    """A server took longer for its part than it may; its stage says which `failure_kind` that is."""

    def __init__(self, stage: Stage, server_name: str, path: str, seconds: float) -> None:
        super().__init__(
            f"{stage.name}: {server_name} did not answer {path} within {seconds:g} s ({stage.key} sets the limit)"
        )
        self.stage = stage
        self.failure_kind = stage.failure_kind
        self.server_name = server_name


def stage_seconds(config: Mapping[Any, Any]) -> dict[Stage, float]:
    """How many seconds the stages may take in a run of this config, 0 where there is no limit.

    Raises ConfigError for what is no number of seconds.
    """
    return {stage: _seconds(config, stage) for stage in STAGES}


def stage_timeouts(config: Mapping[Any, Any]) -> dict[Stage, ClientTimeout | None]:
    """The same for aiohttp."""
    from aiohttp import ClientTimeout

    seconds = stage_seconds(config)
    return {stage: ClientTimeout(total=value) if value else None for stage, value in seconds.items()}


def _seconds(config: Mapping[Any, Any], stage: Stage) -> float:
    value = config.get(stage.key, stage.seconds)
    if value is None:
        return 0.0
    try:
        if isinstance(value, bool) or not 0 <= float(value) < float("inf"):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{stage.key} is {value!r}: it must be a number of seconds, 0 for no limit, as in +{stage.key}=600."
        ) from None
