"""References between servers, and the few vocabularies of a server block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from nemo_gym.config.keys import (
    ENVIRONMENT_SERVERS,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
    SERVER_TYPES,
)
from nemo_gym.schema.server_refs import (
    AgentServerRef,
    EnvironmentServerRef,
    ModelServerRef,
    ResourcesServerRef,
    ServerRef,
)

__all__ = [
    "AgentServerRef",
    "Domain",
    "EnvironmentServerRef",
    "ModelServerRef",
    "ResourcesServerRef",
    "ServerRef",
    "is_server_ref",
    "references_in",
]

_REF_CLASSES: dict[str, type[ServerRef]] = {
    RESPONSES_API_MODELS: ModelServerRef,
    RESOURCES_SERVERS: ResourcesServerRef,
    RESPONSES_API_AGENTS: AgentServerRef,
    ENVIRONMENT_SERVERS: EnvironmentServerRef,
}


class Domain(str, Enum):  # noqa: UP042 - components rely on str(Domain.X) of a str mixin
    """What a resources server is about."""

    MATH = "math"
    CODING = "coding"
    AGENT = "agent"
    KNOWLEDGE = "knowledge"
    INSTRUCTION_FOLLOWING = "instruction_following"
    LONG_CONTEXT = "long_context"
    SAFETY = "safety"
    GAMES = "games"
    TRANSLATION = "translation"
    E2E = "e2e"
    RLHF = "rlhf"
    OTHER = "other"


def is_server_ref(value: object) -> ServerRef | None:
    """The reference a config value is, or None. Keys beside `type` and `name` don't matter."""
    if not isinstance(value, Mapping):
        return None
    server_type, name = value.get("type"), value.get("name")
    if server_type not in SERVER_TYPES or not isinstance(name, str):
        return None
    return _REF_CLASSES[server_type](type=server_type, name=name)


def references_in(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], ServerRef]]:
    """Every reference in plain data, such as a server's block, with its path of keys and indices."""
    if path and (reference := is_server_ref(value)) is not None:
        yield path, reference
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from references_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references_in(item, (*path, index))
