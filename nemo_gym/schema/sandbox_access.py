"""How another server reaches a sandbox that a resources server has opened."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue


class DirectSandboxConnection(BaseModel):
    """The provider's configuration, by its name in the config, and what it needs to find the sandbox again."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["direct"] = "direct"
    provider_config_ref: str
    descriptor: dict[str, JsonValue]


class SandboxAccess(BaseModel):
    """A sandbox and the folder in it to work in."""

    model_config = ConfigDict(extra="forbid")

    connection: DirectSandboxConnection
    workdir: str
