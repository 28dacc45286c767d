"""The jobs a config asks for, one for each benchmark, and the files each is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_gym.orchestration import driver_command, ray_commands, vllm_commands
from nemo_gym.orchestration.api import RayService, Resume, SubmitConfig, VllmPdService
from nemo_gym.orchestration.collector import collector_config, collector_step, telemetry_env
from nemo_gym.orchestration.deployment import Deployed, Deployment
from nemo_gym.orchestration.layout import Span
from nemo_gym.orchestration.steps import Health, Step, StepEnv

ENV_FOLDER = "env"
COLLECTOR_CONFIG = "otel/collector.yaml"


@dataclass(frozen=True)
class JobPlan:
    """One benchmark's job. `folder` is where its files are on the machine that runs it."""

    config: SubmitConfig
    benchmark: str
    folder: str
    deployment: Deployment
    services: list[Step]
    driver: Step
    collector: Step | None = None
    collector_config: str | None = None

    @property
    def resume(self) -> Resume | None:
        return self.config.driver.benchmarks[self.benchmark].resumable

    @property
    def steps(self) -> list[Step]:
        return [*([self.collector] if self.collector else []), *self.services, self.driver]

    @property
    def ports(self) -> list[int]:
        """Those its services serve at."""
        return sorted({port for step in self.services for port in step.ports})

    def private_files(self) -> dict[str, str]:
        """What only the owner may read, by path below the folder: values of variables."""
        files = {f"{ENV_FOLDER}/{step.name}.env": step.env.file() for step in self.steps}
        return {path: text for path, text in files.items() if text is not None}


@dataclass(frozen=True)
class RunPlan:
    """All jobs of one submission."""

    gym_job_id: str
    run_dir: str
    jobs: list[JobPlan] = field(default_factory=list)

    @classmethod
    def of(cls, config: SubmitConfig, gym_job_id: str, environment: Mapping[str, str], *, user: str = "") -> "RunPlan":
        """The plan of a checked config. `environment` is what `host:` values are read from."""
        run_dir = f"{config.job.output_path.rstrip('/')}/{gym_job_id}"
        result = cls(gym_job_id, run_dir)
        for name in config.driver.benchmarks:
            result.jobs.append(_job(config, name, result, environment, user))
        return result

    def needed_files(self) -> list[str]:
        """Sources of mounts and image files, which must exist where the jobs run."""
        steps = self.jobs[0].steps if self.jobs else []
        own = {f"{job.folder}" for job in self.jobs}
        return list(dict.fromkeys(path for step in steps for path in step.needed_files() if path not in own))


def _job(config: SubmitConfig, name: str, run: RunPlan, environment: Mapping[str, str], user: str) -> JobPlan:
    deployment = Deployment.of(config)
    folder = f"{run.run_dir}/{name}"
    driver = config.driver
    command, secrets = driver_command.driver_command(config, name, folder)
    env = StepEnv.of({**driver_command.key_variables(config), **driver.env}, environment).with_private(secrets)
    env = env.with_public(driver_command.policy_variables(config, name, folder))
    env = env.with_public(telemetry_env(config, run.gym_job_id))
    driver_step = Step(
        "driver",
        command,
        Span(deployment.driver_node, 1),
        env,
        driver.container,
        (*driver.mounts, f"{folder}:{folder}"),
    )
    services = [step for deployed in deployment.services for step in _steps(config, deployed, deployment, environment)]
    if not config.otel.is_on:
        return JobPlan(config, name, folder, deployment, services, driver_step)
    facts = {"user": user, "run_id": run.gym_job_id, "benchmark": name, "cluster": config.cluster}
    collector = collector_step(config, folder, deployment, environment)
    return JobPlan(
        config, name, folder, deployment, services, driver_step, collector, collector_config(config, deployment, facts)
    )


def _steps(
    config: SubmitConfig, deployed: Deployed, deployment: Deployment, environment: Mapping[str, str]
) -> list[Step]:
    service = deployed.service
    env = StepEnv.of(service.env, environment)
    if isinstance(service, RayService):
        return _ray_steps(service, deployed, deployment, env)
    if isinstance(service, VllmPdService):
        name = deployed.name
        tiers = [one for one in deployment.services if one.pair is service]
        command = vllm_commands.router_command(deployed, tiers)
    else:
        command = vllm_commands.model_command(deployed)
        name = deployed.name
    check = service.health_check
    serving = deployed.span.nodes if deployed.pair is not None and deployed.pair.server_per_node else 1
    nodes = tuple(range(deployed.span.first, deployed.span.first + serving))
    health = Health(nodes, deployed.health_port, check.path, check.timeout_seconds)
    text = f"{service.pre_command.strip()}\n{command}" if service.pre_command.strip() else command
    ports = tuple(dict.fromkeys([*deployed.ports, deployed.health_port]))
    return [Step(name, text, deployed.span, env, service.container, tuple(service.mounts), health, ports)]


def _ray_steps(service: RayService, deployed: Deployed, deployment: Deployment, env: StepEnv) -> list[Step]:
    layout, check, pre = deployment.layout, service.health_check, service.pre_command.strip()
    has_http = check.port is not None
    health = Health(
        (deployed.span.first,), check.port or service.port, check.path if has_http else None, check.timeout_seconds
    )

    def step(name: str, command: str, span: Span, health: Health | None = None, ports: tuple[int, ...] = ()) -> Step:
        text = f"{pre}\n{command}" if pre else command
        return Step(name, text, span, env, service.container, tuple(service.mounts), health, ports)

    ports = tuple(dict.fromkeys([*deployed.ports, deployed.health_port]))
    steps = [step(deployed.name, ray_commands.head_command(deployed, layout), deployed.span, health, ports)]
    for pool in ray_commands.pools_of(service, layout):
        nodes = ray_commands.workers_in(pool, deployed, layout)
        if nodes and not deployment.is_local:
            span = Span(nodes[0], len(nodes))
            steps.append(step(f"{deployed.name}-{pool}", ray_commands.worker_command(deployed, pool), span))
    return steps
