"""The submit config: what is served, where it runs, and which benchmarks are driven. All models refuse unknown keys."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from nemo_gym.orchestration.service_models import (
    BaseService,
    HealthCheck,
    RayService,
    Service,
    StrictModel,
    VllmPdService,
    VllmService,
)
from nemo_gym.orchestration.values import (
    Duration,
    Env,
    FolderPath,
    Line,
    Mount,
    Name,
    Port,
    Variable,
    Word,
    Words,
)

__all__ = [
    "BaseService",
    "Benchmark",
    "Compute",
    "Driver",
    "GymInstall",
    "HealthCheck",
    "Job",
    "LocalCompute",
    "NodePool",
    "Otel",
    "RayService",
    "Resume",
    "Service",
    "SlurmCompute",
    "SubmitConfig",
    "VllmPdService",
    "VllmService",
]


class NodePool(StrictModel):
    """Nodes of one kind within the job's allocation."""

    partition: Word | None = None
    nodes: int = Field(default=1, ge=1)
    ntasks_per_node: int = Field(default=1, ge=1)
    gpus_per_node: int | None = Field(default=None, ge=0)
    extra_args: Words = Field(default_factory=list)


class SlurmCompute(StrictModel):
    """A Slurm cluster. Without a `hostname` this machine is its login node."""

    type: Literal["slurm"]
    account: Word | None = None
    hostname: Annotated[str, Field(pattern=r"^[A-Za-z0-9._][A-Za-z0-9._@-]*$")] | None = None
    walltime: Duration | None = None
    node_pools: dict[Name, NodePool] = Field(min_length=1)
    extra_args: Words = Field(default_factory=list)


class LocalCompute(StrictModel):
    """This machine, without containers. It takes the keys of a cluster too, so that the same file runs on both."""

    type: Literal["local"]
    account: Word | None = None
    hostname: str | None = None
    walltime: Duration | None = None
    node_pools: dict[Name, NodePool] = Field(default_factory=dict)
    extra_args: Words = Field(default_factory=list)


Compute: TypeAlias = Annotated[SlurmCompute | LocalCompute, Field(discriminator="type")]
COMPUTE_TYPES = ("slurm", "local")


class GymInstall(StrictModel):
    """The version of Gym that the driver installs, from a git repository, before it runs."""

    repo: Line
    ref: Line


class Resume(StrictModel):
    """How often, and how long in all, a benchmark is gone on with in further jobs."""

    max_retries: int = Field(default=3, ge=0)
    max_walltime: Duration | None = None


class Benchmark(StrictModel):
    """What the driver does: `gym eval prepare` with `prepare`, then `gym eval run` with `run`, or a `command`."""

    prepare: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    command: str | None = None
    resumable: Resume | None = None

    @field_validator("resumable", mode="before")
    @classmethod
    def _read_switch(cls, value: Any) -> Any:
        return {True: {}, False: None}.get(value, value) if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _check_command(self) -> Self:
        if self.command is None:
            return self
        if not self.command.strip():
            raise ValueError("command is empty")
        if self.run or self.resumable:
            raise ValueError("command excludes run and resumable: it says itself what is run")
        return self


class Driver(StrictModel):
    """The step that runs the benchmarks against the services."""

    container: Line = "python:3.12"
    gym_install: GymInstall | None = None
    policy_model: Name | None = None
    policy_host: Word = "localhost"
    policy_model_type: Literal[""] | Word = "openai_model"
    benchmarks: dict[Name, Benchmark] = Field(min_length=1)
    env: Env = Field(default_factory=dict)
    mounts: list[Mount] = Field(default_factory=list)


class Job(StrictModel):
    """Where the runs are kept."""

    output_path: FolderPath


class Otel(StrictModel):
    """A collector beside the services. It is off unless it has an `endpoint`."""

    enabled: bool | None = None
    binary: Line = "otelcol-contrib"
    container: Line | None = None
    endpoint: Line | None = None
    token_env: Variable = "OTEL_TOKEN"
    service_name: Line | None = None
    component: Line = "gym-vllm"
    gym_telemetry: bool = True
    gym_span_groups: Line = "default,verify"
    gym_logs: bool = True
    gpu_metrics_port: Port = 9400
    node_metrics_port: Port = 9100
    scrape_interval_seconds: int = Field(default=15, ge=1)
    health_check_timeout_seconds: int = Field(default=300, ge=1)

    @property
    def is_on(self) -> bool:
        return self.endpoint is not None if self.enabled is None else self.enabled

    @model_validator(mode="after")
    def _check_destination(self) -> Self:
        missing = [name for name in ("endpoint", "service_name") if getattr(self, name) is None]
        if self.is_on and missing:
            raise ValueError(f"it is enabled without {' and '.join(missing)}: say where to send what, or switch it off")
        return self


class SubmitConfig(StrictModel):
    """A whole submit config, its parts valid each by itself; `checks.check` tells whether they fit together."""

    services: dict[Name, Service] = Field(default_factory=dict)
    compute: dict[Name, Compute]
    driver: Driver
    job: Job
    otel: Otel = Otel()

    @field_validator("compute")
    @classmethod
    def _one_compute(cls, value: dict[str, Compute]) -> dict[str, Compute]:
        if len(value) != 1:
            raise ValueError(f"exactly one cluster is needed, and {len(value) or 'none'} is given")
        return value

    @property
    def cluster(self) -> str:
        return next(iter(self.compute))

    @property
    def the_compute(self) -> SlurmCompute | LocalCompute:
        return self.compute[self.cluster]
