"""Environments of the reset and step kind: derive from `GymnasiumServer`."""

from resources_servers.gymnasium.actions import OnInvalidAction, extract_text, tagged_actions, tool_output
from resources_servers.gymnasium.episodes import EpisodeStore
from resources_servers.gymnasium.rows import task_of
from resources_servers.gymnasium.server import GymnasiumServer, StepResult
from resources_servers.gymnasium.wire import (
    EnvCloseResponse,
    EnvResetRequest,
    EnvResetResponse,
    EnvStepRequest,
    EnvStepResponse,
)

__all__ = [
    "EnvCloseResponse",
    "EnvResetRequest",
    "EnvResetResponse",
    "EnvStepRequest",
    "EnvStepResponse",
    "EpisodeStore",
    "GymnasiumServer",
    "OnInvalidAction",
    "StepResult",
    "extract_text",
    "tagged_actions",
    "task_of",
    "tool_output",
]
