"""Walking the config as plain data: top-level entries and the implementation blocks in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym.config.keys import NEMO_GYM_RESERVED_TOP_LEVEL_KEYS, SERVER_TYPES


def implementation_blocks(config: Mapping[str, Any], *server_types: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Instance name, implementation and block of every server of the given types (default: all), in config order."""
    for name, entry in config.items():
        if name in NEMO_GYM_RESERVED_TOP_LEVEL_KEYS or not isinstance(entry, Mapping):
            continue
        for server_type in server_types or SERVER_TYPES:
            implementations = entry.get(server_type)
            for kind, block in implementations.items() if isinstance(implementations, Mapping) else ():
                if isinstance(block, dict):
                    yield str(name), str(kind), block


def reference_name(block: Mapping[str, Any], field: str) -> str | None:
    """The instance a field of a block refers to, or None when it isn't a reference by name."""
    value = block.get(field)
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else None


def agent_stem(name: str, kind: str) -> str:
    """What an agent's name says beside its implementation: `mcqa` of `mcqa_simple_agent`, whose kind is `simple_agent`.

    Falls back to dropping a trailing `_agent`; may be empty.
    """
    if name == kind:
        return ""
    if name.endswith(f"_{kind}"):
        return name.removesuffix(f"_{kind}")
    return name.removesuffix("_agent")
