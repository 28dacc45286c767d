"""Which nodes of the allocation are whose."""

from dataclasses import dataclass

from nemo_gym.orchestration.api import NodePool, RayService, SubmitConfig, VllmService
from nemo_gym.orchestration.service_models import BaseService


@dataclass(frozen=True)
class Span:
    """`nodes` nodes in a row, from the one with index `first`."""

    first: int
    nodes: int

    @property
    def last(self) -> int:
        return self.first + self.nodes - 1

    def overlaps(self, other: "Span") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Layout:
    """The nodes of a job: pools lie one after the other, as they are declared. A local job has one node, this one."""

    pools: dict[str, Span]
    settings: dict[str, NodePool]

    @classmethod
    def of(cls, config: SubmitConfig) -> "Layout":
        """The layout of a config's compute."""
        compute = config.the_compute
        if compute.type == "local":
            names = compute.node_pools or {"local": NodePool()}
            return cls({name: Span(0, 1) for name in names}, dict.fromkeys(names, NodePool()))
        pools: dict[str, Span] = {}
        first = 0
        for name, pool in compute.node_pools.items():
            pools[name] = Span(first, pool.nodes)
            first += pool.nodes
        return cls(pools, dict(compute.node_pools))

    @property
    def total(self) -> int:
        return max(span.last for span in self.pools.values()) + 1

    def pools_at(self, span: Span) -> list[str]:
        return [name for name, pool in self.pools.items() if pool.overlaps(span)]

    def gpus_per_node(self, span: Span) -> int | None:
        """GPUs of each node; None where a pool doesn't say, and of pools that differ the least."""
        counts = [self.settings[name].gpus_per_node for name in self.pools_at(span)]
        known = [count for count in counts if count is not None]
        return min(known) if len(known) == len(counts) else None

    def span_of(self, service: BaseService, driver: int) -> Span:
        """Where a service runs: in its pool, else a vllm on all nodes, anything else on the driver's node."""
        if service.node_pool is not None:
            span = self.pools[service.node_pool]
        elif isinstance(service, VllmService):
            span = Span(0, self.total)
        else:
            return Span(driver, 1)
        return self._narrowed(span, service) if isinstance(service, VllmService) else Span(span.first, 1)

    def _narrowed(self, span: Span, service: VllmService) -> Span:
        """One instance that fits into a node needs no further one."""
        per_node = self.gpus_per_node(span)
        is_small = per_node is not None and service.gpus_per_instance <= per_node
        return Span(span.first, 1) if service.number_of_instances == 1 and is_small else span

    def driver_node(self, config: SubmitConfig) -> int:
        """The first node of the policy's service, else of the job."""
        name = config.driver.policy_model
        service = config.services.get(name) if name else None
        if service is None or isinstance(service, RayService) or service.node_pool is None:
            return 0
        return self.pools[service.node_pool].first
