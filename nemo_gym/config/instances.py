"""The servers a config defines.

A top-level entry `<name>: {<server type>: {<implementation>: {entrypoint: …}}}` is a server instance. The pydantic
models check such an entry; `server_instances` lists what is there to be started or called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from nemo_gym.config.dataset_entries import BenchmarkDatasetConfig, DatasetConfig, ServerDataset
from nemo_gym.config.keys import (
    ENVIRONMENT_SERVERS,
    LEGACY_AGENT,
    NEMO_GYM_RESERVED_TOP_LEVEL_KEYS,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
    SERVER_TYPES,
)
from nemo_gym.config.references import (
    AgentServerRef,
    Domain,
    EnvironmentServerRef,
    ModelServerRef,
    ResourcesServerRef,
    ServerRef,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class BaseServerConfig(BaseModel):
    """Where a server listens."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """What every server is started with."""

    entrypoint: str
    domain: Domain | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """The same with the instance's name, unique in a run."""

    name: str


class BaseRunServerTypeConfig(BaseModel):
    """An implementation block before hosts and ports are known; its other fields belong to the server's own class."""

    model_config = ConfigDict(extra="allow")

    entrypoint: str
    domain: Domain | None = None
    host: str | None = None
    port: int | None = None
    num_workers: int | None = None
    datasets: list[ServerDataset] | None = None

    @model_validator(mode="before")
    @classmethod
    def drop_domain(cls, block: object) -> object:
        """Only resources servers have a domain."""
        return {key: value for key, value in block.items() if key != "domain"} if isinstance(block, Mapping) else block


class ResourcesRunServerTypeConfig(BaseRunServerTypeConfig):
    """The implementation block of a resources server, which must say its domain."""

    domain: Domain

    @model_validator(mode="before")
    @classmethod
    def drop_domain(cls, block: object) -> object:
        return block


class BaseServerTypeConfig(BaseModel):
    """`<server type>: {<implementation>: {…}}` with exactly one implementation."""

    model_config = ConfigDict(extra="allow")

    SERVER_TYPE: ClassVar[str]


class ResponsesAPIModelServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE: ClassVar[str] = RESPONSES_API_MODELS
    responses_api_models: dict[str, BaseRunServerTypeConfig] = Field(min_length=1, max_length=1)


class ResourcesServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE: ClassVar[str] = RESOURCES_SERVERS
    resources_servers: dict[str, ResourcesRunServerTypeConfig] = Field(min_length=1, max_length=1)


class ResponsesAPIAgentServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE: ClassVar[str] = RESPONSES_API_AGENTS
    responses_api_agents: dict[str, BaseRunServerTypeConfig] = Field(min_length=1, max_length=1)


class EnvironmentServerTypeConfig(BaseServerTypeConfig):
    SERVER_TYPE: ClassVar[str] = ENVIRONMENT_SERVERS
    environment_servers: dict[str, BaseRunServerTypeConfig] = Field(min_length=1, max_length=1)


class BaseServerInstanceConfig(BaseServerTypeConfig):
    """One checked instance; `server_type_config_dict` is its live entry in the global config."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    REF_CLASS: ClassVar[type[ServerRef]]

    name: str
    server_type_config_dict: DictConfig

    def get_server_ref(self) -> ServerRef:
        return self.REF_CLASS(type=self.SERVER_TYPE, name=self.name)

    def get_inner_run_server_config_dict(self) -> DictConfig:
        """The implementation block itself, to read or change in place."""
        implementations = self.server_type_config_dict[self.SERVER_TYPE]
        return cast(DictConfig, implementations[next(iter(implementations))])

    def get_inner_run_server_config(self) -> BaseRunServerTypeConfig:
        return cast(BaseRunServerTypeConfig, next(iter(getattr(self, self.SERVER_TYPE).values())))

    @property
    def datasets(self) -> list[DatasetConfig | BenchmarkDatasetConfig] | None:
        return self.get_inner_run_server_config().datasets


class ResponsesAPIModelServerInstanceConfig(ResponsesAPIModelServerTypeConfig, BaseServerInstanceConfig):
    REF_CLASS: ClassVar[type[ServerRef]] = ModelServerRef


class ResourcesServerInstanceConfig(ResourcesServerTypeConfig, BaseServerInstanceConfig):
    REF_CLASS: ClassVar[type[ServerRef]] = ResourcesServerRef


class ResponsesAPIAgentServerInstanceConfig(ResponsesAPIAgentServerTypeConfig, BaseServerInstanceConfig):
    REF_CLASS: ClassVar[type[ServerRef]] = AgentServerRef


class EnvironmentServerInstanceConfig(EnvironmentServerTypeConfig, BaseServerInstanceConfig):
    REF_CLASS: ClassVar[type[ServerRef]] = EnvironmentServerRef


ServerTypeConfig: TypeAlias = (
    ResponsesAPIModelServerTypeConfig
    | ResourcesServerTypeConfig
    | ResponsesAPIAgentServerTypeConfig
    | EnvironmentServerTypeConfig
)
ServerInstanceConfig: TypeAlias = (
    ResponsesAPIModelServerInstanceConfig
    | ResourcesServerInstanceConfig
    | ResponsesAPIAgentServerInstanceConfig
    | EnvironmentServerInstanceConfig
)

_INSTANCE_CLASSES: dict[str, type[ServerInstanceConfig]] = {
    RESPONSES_API_MODELS: ResponsesAPIModelServerInstanceConfig,
    RESOURCES_SERVERS: ResourcesServerInstanceConfig,
    RESPONSES_API_AGENTS: ResponsesAPIAgentServerInstanceConfig,
    ENVIRONMENT_SERVERS: EnvironmentServerInstanceConfig,
}


def maybe_get_server_instance_config(
    name: str, server_type_config_dict: object
) -> tuple[ServerInstanceConfig | None, ValidationError | None]:
    """The checked instance, or why it isn't one; (None, None) for anything but a mapping."""
    if not isinstance(server_type_config_dict, DictConfig | Mapping):
        return None, None
    entry = server_type_config_dict
    live = entry if isinstance(entry, DictConfig) else OmegaConf.create(dict(entry))
    fields = {**_checkable(live), "name": name, "server_type_config_dict": live}
    server_type = next((key for key in live if key in _INSTANCE_CLASSES), None)
    try:
        if server_type is None:
            return TypeAdapter[ServerInstanceConfig](ServerInstanceConfig).validate_python(fields), None
        return _INSTANCE_CLASSES[str(server_type)].model_validate(fields), None
    except ValidationError as error:
        return None, error


_CHECKED_FIELDS = ("entrypoint", "host", "port", "num_workers", "domain", "datasets", "agent_server")


def _checkable(entry: DictConfig) -> dict[str, Any]:
    """The entry as plain data: fields that are checked here are resolved, the server's own stay as written."""
    plain = cast(dict[str, Any], OmegaConf.to_container(entry, resolve=False))
    for server_type in SERVER_TYPES:
        implementations = plain.get(server_type)
        for implementation, block in implementations.items() if isinstance(implementations, dict) else ():
            if isinstance(block, dict):
                _resolve_fields(entry[server_type][implementation], block)
    return plain


def _resolve_fields(live: DictConfig, block: dict[str, Any]) -> None:
    for field in _CHECKED_FIELDS:
        if _mentions_interpolation(block.get(field)):
            value = live[field]
            block[field] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _mentions_interpolation(value: object) -> bool:
    if isinstance(value, str):
        return "${" in value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_mentions_interpolation, items))


@dataclass(frozen=True)
class ServerInstance:
    """A server to start or to call; `block` is its implementation block as plain data.

    `host`, `port` and `entrypoint` are resolved there, other `${...}` stay as written: the server resolves its own.
    """

    name: str
    server_type: str
    implementation: str
    block: dict[str, Any]

    @property
    def host(self) -> str:
        """The host, empty before the config was composed."""
        return str(self.block.get("host") or "")

    @property
    def port(self) -> int:
        """The port, 0 before the config was composed and -1 after composing it offline."""
        return int(self.block.get("port") or 0)

    @property
    def entrypoint(self) -> str:
        """The file to run, relative to the server's folder."""
        return str(self.block["entrypoint"])

    @property
    def alias_of(self) -> str | None:
        """For a relay to one agent: that agent's name. A relay is no server, only another name of its agent."""
        if self.server_type != ENVIRONMENT_SERVERS or self.implementation != LEGACY_AGENT:
            return None
        agent = self.block.get("agent_server")
        return agent.get("name") if isinstance(agent, dict) else None

    @property
    def is_alias(self) -> bool:
        return self.alias_of is not None


def server_instances(config: DictConfig | Mapping[str, Any]) -> list[ServerInstance]:
    """The servers of a config in its order, aliases included; entries that fail their checks are left out."""
    live = config if isinstance(config, DictConfig) else OmegaConf.create(dict(config))
    return list(_valid_instances(live))


def _valid_instances(config: DictConfig) -> Iterator[ServerInstance]:
    for name in config:
        if name in NEMO_GYM_RESERVED_TOP_LEVEL_KEYS:
            continue
        entry = config._get_node(name)
        instance = maybe_get_server_instance_config(str(name), entry)[0] if isinstance(entry, DictConfig) else None
        if instance is not None:
            yield _as_server_instance(instance)


def _as_server_instance(instance: ServerInstanceConfig) -> ServerInstance:
    live = instance.get_inner_run_server_config_dict()
    implementation = str(next(iter(instance.server_type_config_dict[instance.SERVER_TYPE])))
    block = cast(dict[str, Any], OmegaConf.to_container(live, resolve=False))
    _resolve_fields(live, block)
    return ServerInstance(instance.name, instance.SERVER_TYPE, implementation, block)
