"""What is really started for the services of a config, and where."""

from dataclasses import dataclass, field

from nemo_gym.orchestration.api import RayService, Service, SubmitConfig, VllmPdService, VllmService
from nemo_gym.orchestration.layout import Layout, Span

SERVER_KEY = "VLLM_API_KEY"
"""The variable by which a vLLM server is told the key that it asks for."""


@dataclass(frozen=True)
class Deployed:
    """A service as it is started. The parts of a `vllm_pd` service are three; `tier` says which a server belongs to."""

    name: str
    service: Service
    span: Span
    gpus_per_node: int | None
    tier: str | None = None
    pair: VllmPdService | None = None

    @property
    def ports(self) -> list[int]:
        if self.tier is not None and self.pair is not None:
            side = self.pair.nixl_side_channel_port + (1 if self.tier == "decode" else 0)
            return [self.service.port, side]
        return [self.service.port]

    @property
    def takes_gpus(self) -> bool:
        return isinstance(self.service, VllmService)

    @property
    def is_gateway(self) -> bool:
        """Whether Ray Serve stands before its instances: where asked for, and where none of several fits a node."""
        service = self.service
        if not isinstance(service, VllmService) or self.tier is not None:
            return False
        too_large = self.gpus_per_node is not None and service.gpus_per_instance > self.gpus_per_node
        return service.use_ray_serve or (self.span.nodes > 1 and service.number_of_instances > 1 and too_large)

    @property
    def health_port(self) -> int:
        return self.service.health_check.port or self.service.port


@dataclass(frozen=True)
class Policy:
    """How the driver reaches the policy model."""

    base_url: str
    model_name: str
    api_key: str = "dummy"
    """The key that its server takes, with a prefix as values of variables have one; `dummy` where any will do."""

    @property
    def has_key(self) -> bool:
        return self.api_key != "dummy"


@dataclass(frozen=True)
class Deployment:
    """The services as they are started, in order, on the nodes of a layout."""

    layout: Layout
    driver_node: int
    services: list[Deployed] = field(default_factory=list)
    is_local: bool = False

    @classmethod
    def of(cls, config: SubmitConfig) -> "Deployment":
        """What a config whose names are consistent starts."""
        layout = Layout.of(config)
        driver = layout.driver_node(config)
        result = cls(layout, driver, is_local=config.the_compute.type == "local")
        for name, service in config.services.items():
            if isinstance(service, VllmPdService):
                result.services.extend(result._pair(name, service))
            else:
                result.services.append(result._placed(name, service))
        return result

    def _placed(
        self, name: str, service: Service, tier: str | None = None, pair: VllmPdService | None = None
    ) -> Deployed:
        span = self._span(service)
        return Deployed(name, service, span, self.layout.gpus_per_node(span), tier, pair)

    def _span(self, service: Service) -> Span:
        known = service.node_pool is None or service.node_pool in self.layout.pools
        return self.layout.span_of(service, self.driver_node) if known else Span(0, 1)

    def _pair(self, name: str, pair: VllmPdService) -> list[Deployed]:
        tiers = [
            self._placed(f"{name}-{tier}", getattr(pair, tier), tier=tier, pair=pair) for tier in ("prefill", "decode")
        ]
        router = Deployed(name, pair, Span(self.driver_node, 1), None)
        return [*tiers, router]

    def named(self, name: str) -> Deployed:
        return next(service for service in self.services if service.name == name)

    def first_over_nodes(self) -> Deployed | None:
        """The first model that spans several nodes; None where each fits one."""
        return next((one for one in self.services if one.takes_gpus and one.span.nodes > 1), None)


def policy_of(config: SubmitConfig) -> Policy | None:
    """The policy model's address; None where the config names no service for it."""
    name = config.driver.policy_model
    service = config.services.get(name) if name else None
    if service is None or isinstance(service, RayService):
        return None
    url = f"http://{config.driver.policy_host}:{service.port}/v1"
    return Policy(url, service.served_model_name or service.model, service.env.get(SERVER_KEY, "dummy"))
