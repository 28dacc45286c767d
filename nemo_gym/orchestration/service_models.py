"""The services of a submit config: model servers and Ray clusters."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym.orchestration.values import Env, Line, Mount, Name, Port, ShellWords


class StrictModel(BaseModel):
    """A part of a submit config: keys it doesn't know are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class HealthCheck(StrictModel):
    """How long a service may take until `GET path` is answered with success."""

    path: Annotated[str, Field(pattern=r"^/[^\s'\"`$\\]*$")] = "/health"
    port: Port | None = None
    timeout_seconds: int = Field(default=60, ge=1)


class BaseService(StrictModel):
    """What all services have. `placement` names the compute, of which there is one."""

    container: Line | None = None
    placement: Name | None = None
    node_pool: Name | None = None
    health_check: HealthCheck = HealthCheck()
    env: Env = Field(default_factory=dict)
    mounts: list[Mount] = Field(default_factory=list)
    pre_command: str = ""


class VllmService(BaseService):
    """`vllm serve`, once or `number_of_instances` times behind one port."""

    type: Literal["vllm"] = "vllm"
    model: Line
    port: Port = 8000
    served_model_name: Line | None = None
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    trust_remote_code: bool = False
    number_of_instances: int = Field(default=1, ge=1)
    use_ray_serve: bool = False
    extra_args: ShellWords = ""
    data_parallel_rpc_port: Port = 13345

    @property
    def gpus_per_instance(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def gpus(self) -> int:
        return self.gpus_per_instance * self.number_of_instances


class VllmPdService(BaseService):
    """Two tiers of `vllm serve`, one that reads prompts and one that writes answers, behind a router on `port`."""

    type: Literal["vllm_pd"]
    model: Line
    port: Port = 8000
    served_model_name: Line | None = None
    prefill: VllmService
    decode: VllmService
    server_per_node: bool = False
    nixl_side_channel_port: Port = 5600
    prefill_policy: Line = "cache_aware"
    decode_policy: Line = "cache_aware"
    intra_node_data_parallel_size: int = Field(default=1, ge=1)
    request_timeout_secs: int = Field(default=86400, ge=1)
    log_level: Line = "error"
    kv_connector: Line = "NixlConnector"
    kv_load_failure_policy: Line = "fail"

    @model_validator(mode="before")
    @classmethod
    def _tiers_inherit(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        port = values.get("port", 8000)
        filled = dict(values)
        for offset, tier in enumerate(("prefill", "decode"), 1):
            block = values.get(tier, {})
            if not isinstance(block, dict):
                continue
            inherited = {
                key: values[key] for key in ("container", "model", "served_model_name", "placement") if key in values
            }
            if isinstance(port, int):
                inherited["port"] = port + offset
            if tier == "decode":
                inherited["data_parallel_rpc_port"] = _rpc_port(values.get("prefill")) + 1
            filled[tier] = {**inherited, **block}
        return filled

    @model_validator(mode="after")
    def _check_tiers(self) -> Self:
        if self.server_per_node and (self.prefill.number_of_instances > 1 or self.decode.number_of_instances > 1):
            raise ValueError("server_per_node starts one server on each node: leave number_of_instances at 1")
        if self.prefill.data_parallel_rpc_port == self.decode.data_parallel_rpc_port:
            raise ValueError("prefill and decode have the same data_parallel_rpc_port: give them two")
        if self.prefill.use_ray_serve or self.decode.use_ray_serve:
            raise ValueError("prefill and decode can't use_ray_serve: the router stands before their servers")
        return self


def _rpc_port(prefill: object) -> int:
    given = prefill.get("data_parallel_rpc_port") if isinstance(prefill, dict) else None
    return given if isinstance(given, int) else 13345


class RayService(BaseService):
    """A Ray cluster over node pools, its head on the driver's node. No `node_pools` means all of them."""

    type: Literal["ray"]
    node_pools: list[Name] = Field(default_factory=list)
    port: Port = 6379
    resources: dict[Name, dict[str, int | float]] = Field(default_factory=dict)
    num_cpus: int | None = Field(default=None, ge=0)
    num_gpus: int | None = Field(default=None, ge=0)
    extra_args: ShellWords = ""

    @model_validator(mode="after")
    def _check_pools(self) -> Self:
        if self.node_pool is not None:
            raise ValueError("a ray service takes node_pools, a list, instead of node_pool")
        if unknown := set(self.resources) - set(self.node_pools) if self.node_pools else set():
            raise ValueError(f"resources are given for {', '.join(sorted(unknown))}, which node_pools doesn't list")
        return self


Service: TypeAlias = Annotated[VllmService | VllmPdService | RayService, Field(discriminator="type")]
SERVICE_TYPES = ("vllm", "vllm_pd", "ray")
