"""References from one server's configuration to another server."""

from typing import Literal, TypeAlias

from pydantic import BaseModel


class ModelServerRef(BaseModel):
    """Names a model server instance."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """Names a resources server instance."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """Names an agent instance."""

    type: Literal["responses_api_agents"]
    name: str


class EnvironmentServerRef(BaseModel):
    """Names an environment server instance."""

    type: Literal["environment_servers"]
    name: str


ServerRef: TypeAlias = ModelServerRef | ResourcesServerRef | AgentServerRef | EnvironmentServerRef
