"""Whether the parts of a submit config fit together. Every problem is one sentence that names the key."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from nemo_gym.orchestration.api import RayService, SlurmCompute, SubmitConfig, VllmPdService, VllmService
from nemo_gym.orchestration.deployment import SERVER_KEY, Deployment
from nemo_gym.orchestration.errors import SubmitConfigError
from nemo_gym.orchestration.layout import Span
from nemo_gym.orchestration.run_checks import run_warnings
from nemo_gym.orchestration.showing import secrets_in_shell_texts
from nemo_gym.orchestration.values import EnvValue, identifier

POLICY_KEYS = ("policy_base_url", "policy_model_name", "policy_api_key")
_TAKEN = ("driver", "otel", "job", "slurm")


def check(config: SubmitConfig, environment: Mapping[str, str]) -> list[str]:
    """Warnings about a config that can be run. Raises SubmitConfigError for one that can't.

    `environment` is what `host:` values are read from.
    """
    for problem in _problems(config, environment):
        raise SubmitConfigError(f"{problem}.")
    return list(_warnings(config))


def _problems(config: SubmitConfig, environment: Mapping[str, str]) -> Iterator[str]:
    yield from _names(config)
    yield from _containers(config)
    yield from _policy(config)
    yield from _pools_agree(config)
    yield from _host_values(config, environment)
    deployment = Deployment.of(config)
    yield from _ports(deployment)
    yield from _footprints(deployment)
    yield from _tiers(config)


def _names(config: SubmitConfig) -> Iterator[str]:
    pools = config.the_compute.node_pools
    is_local = config.the_compute.type == "local"
    for name, service in config.services.items():
        if name.lower() in _TAKEN:
            yield f"services.{name}: the name is taken by a step of Gym's own; choose another"
        if service.placement not in (None, config.cluster):
            yield f"services.{name}.placement is {service.placement!r}, and the compute is {config.cluster!r}"
        wanted = [service.node_pool] if service.node_pool else []
        wanted += service.node_pools if isinstance(service, RayService) else []
        if isinstance(service, VllmPdService):
            wanted += [tier.node_pool for tier in (service.prefill, service.decode) if tier.node_pool]
        for pool in wanted:
            if pool not in pools and not (is_local and not pools):
                known = ", ".join(pools)
                yield f"services.{name} names the node pool {pool!r}, and compute.{config.cluster} has {known}"
    names = [service.name for service in Deployment.of(config).services]
    for kind, all_names in (("service", names), ("node pool", list(pools))):
        counts = Counter(map(identifier, all_names))
        for one, other in combinations(all_names, 2):
            if counts[identifier(one)] > 1 and identifier(one) == identifier(other):
                yield f"the {kind} names {one!r} and {other!r} are one name in a script; rename one"


def _containers(config: SubmitConfig) -> Iterator[str]:
    if config.the_compute.type == "local":
        return
    for name, service in config.services.items():
        parts = {"": service}
        if isinstance(service, VllmPdService):
            parts = {"": service, ".prefill": service.prefill, ".decode": service.decode}
        for part, block in parts.items():
            if block.container is None:
                yield f"missing services.{name}{part}.container: the image it runs in on {config.cluster}"


def _policy(config: SubmitConfig) -> Iterator[str]:
    name = config.driver.policy_model
    if name is None:
        return
    service = config.services.get(name)
    if service is None:
        known = ", ".join(config.services) or "none"
        yield f"driver.policy_model is {name!r}, and the services are {known}"
    elif isinstance(service, RayService):
        yield f"driver.policy_model is {name!r}, a Ray cluster: name a model's service"
    for bench, benchmark in config.driver.benchmarks.items():
        for key in POLICY_KEYS:
            if key in benchmark.run:
                own = f" (a key is {SERVER_KEY} in the env of services.{name})" if key == "policy_api_key" else ""
                which = f"driver.benchmarks.{bench}.run.{key}"
                yield f"{which} is set, and driver.policy_model sets it too: leave one out{own}"


def _pools_agree(config: SubmitConfig) -> Iterator[str]:
    if not isinstance(config.the_compute, SlurmCompute):
        return
    pools = config.the_compute.node_pools
    for field in ("partition", "ntasks_per_node", "gpus_per_node"):
        values = {name: getattr(pool, field) for name, pool in pools.items()}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{name}: {value}" for name, value in values.items())
            yield f"compute.{config.cluster}.node_pools differ in {field} ({said}), and one job asks for all of them"


def _host_values(config: SubmitConfig, environment: Mapping[str, str]) -> Iterator[str]:
    maps = {"driver.env": config.driver.env}
    for name, service in config.services.items():
        maps[f"services.{name}.env"] = service.env
        if isinstance(service, VllmPdService):
            maps |= {f"services.{name}.{tier}.env": getattr(service, tier).env for tier in ("prefill", "decode")}
    for where, env in maps.items():
        for key, text in env.items():
            value = EnvValue.of(text)
            if value.kind == "host" and value.text not in environment:
                yield f"{where}.{key} is {text}, and {value.text} is not set here: export it and submit again"
    if config.otel.is_on and config.otel.token_env not in environment:
        yield f"otel.token_env is {config.otel.token_env}, which is not set here: export it, or set otel.enabled=false"


def _ports(deployment: Deployment) -> Iterator[str]:
    claims = [(port, service.name, service.span) for service in deployment.services for port in service.ports]
    for (port, one, here), (other_port, other, there) in combinations(claims, 2):
        if port == other_port and here.overlaps(there):
            yield f"the services {one!r} and {other!r} both use port {port} on the same node: give one another port"


def _footprints(deployment: Deployment) -> Iterator[str]:
    layout = deployment.layout
    taken: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for deployed in deployment.services:
        service, span = deployed.service, deployed.span
        if not isinstance(service, VllmService):
            continue
        instances = service.number_of_instances
        gateway = deployed.is_gateway
        if span.nodes > 1 and instances > 1 and instances % span.nodes and not gateway:
            yield (
                f"services.{deployed.name}: {instances} instances can't be spread evenly over {span.nodes} nodes; "
                "change number_of_instances or the pool's nodes"
            )
        per_node = layout.gpus_per_node(span)
        if per_node is None or deployment.is_local:
            continue
        if service.gpus > per_node * span.nodes:
            yield (
                f"services.{deployed.name} needs {service.gpus} GPUs ({service.tensor_parallel_size} tensor × "
                f"{service.pipeline_parallel_size} pipeline × {instances}), and its nodes have "
                f"{per_node * span.nodes}"
            )
        taken.setdefault((span.first, span.nodes), []).append((deployed.name, service.gpus))
    for (first, nodes), users in taken.items():
        per_node = layout.gpus_per_node(Span(first, nodes))
        needed = sum(gpus for _, gpus in users)
        if per_node is not None and len(users) > 1 and needed > per_node * nodes:
            names = " and ".join(name for name, _ in users)
            yield f"the services {names} need {needed} GPUs together, and their nodes have {per_node * nodes}"


def _tiers(config: SubmitConfig) -> Iterator[str]:
    if config.the_compute.type == "local":
        return
    for name, service in config.services.items():
        if not isinstance(service, VllmPdService):
            continue
        pools = [service.prefill.node_pool, service.decode.node_pool]
        if None in pools or pools[0] == pools[1]:
            yield f"services.{name}: prefill and decode each need a node_pool of their own"
        elif next(iter(config.the_compute.node_pools)) not in pools:
            yield f"services.{name}: its router runs on the first node pool, which prefill or decode must be on"


def _warnings(config: SubmitConfig) -> Iterator[str]:
    deployment = Deployment.of(config)
    yield from run_warnings(config)
    for where, name in secrets_in_shell_texts(config):
        yield (
            f"{where} says the value of {name}, which the process list shows: give it to env as host:NAME, and name "
            "the variable here where the program doesn't read it by itself."
        )
    if deployment.is_local:
        yield from _unused_here(config)
        return
    for deployed in deployment.services:
        service, per_node = deployed.service, deployment.layout.gpus_per_node(deployed.span)
        if not isinstance(service, VllmService) or per_node is None:
            continue
        pool = deployment.layout.pools[service.node_pool].nodes if service.node_pool else deployment.layout.total
        idle = per_node * pool - service.gpus
        sharers = sum(other.span.overlaps(deployed.span) for other in deployment.services if other.takes_gpus)
        if idle > 0 and sharers == 1:
            yield f"services.{deployed.name} uses {service.gpus} of {per_node * pool} GPUs: {idle} stay idle."
        elif sharers > 1:
            yield (
                f"services.{deployed.name} shares its nodes with another model, and each sees all GPUs: set "
                "CUDA_VISIBLE_DEVICES in their env."
            )


def _unused_here(config: SubmitConfig) -> Iterator[str]:
    parts = {name: service for name, service in config.services.items() if service.container or service.mounts}
    if parts:
        names = ", ".join(parts)
        yield f"Containers and mounts are not used here: {names} and the driver run as processes of this machine."
