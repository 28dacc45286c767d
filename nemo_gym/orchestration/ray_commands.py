"""A Ray cluster as a service: a head on the driver's node, and workers on the other nodes of its pools."""

import json
import re
import shlex

from nemo_gym.orchestration.api import RayService
from nemo_gym.orchestration.deployment import Deployed
from nemo_gym.orchestration.layout import Layout
from nemo_gym.orchestration.values import identifier

_HEAD_ONLY = re.compile(r"--(?:port|redis-shard-ports|include-dashboard)(?:=|\s+)\S+\s*")


def pools_of(service: RayService, layout: Layout) -> list[str]:
    return [name for name in service.node_pools or layout.pools if name in layout.pools]


def workers_in(pool: str, deployed: Deployed, layout: Layout) -> list[int]:
    """The nodes of a pool that join the head: all but the head's own."""
    span = layout.pools[pool]
    return [node for node in range(span.first, span.last + 1) if node != deployed.span.first]


def head_command(deployed: Deployed, layout: Layout) -> str:
    """Shell text that runs the head until it is ended. It has the resources of the pool it stands in."""
    service = deployed.service
    assert isinstance(service, RayService)
    own = next((pool for pool in pools_of(service, layout) if layout.pools[pool].overlaps(deployed.span)), None)
    extra = f" {service.extra_args}" if service.extra_args else ""
    return (
        f"exec ray start --block --head --port {service.port}"
        f' --node-ip-address "${{{address_variable(deployed.name)}%:*}}"'
        f"{_amounts(service, own)}{extra}"
    )


def worker_command(deployed: Deployed, pool: str) -> str:
    """Shell text that joins the head once it answers."""
    service = deployed.service
    assert isinstance(service, RayService)
    address = f'"${address_variable(deployed.name)}"'
    extra = _HEAD_ONLY.sub("", f"{service.extra_args} ").strip()
    return (
        f"until ray status --address {address} >/dev/null 2>&1; do sleep 2; done\n"
        f"exec ray start --block --address {address}{_amounts(service, pool)}{f' {extra}' if extra else ''}"
    )


def address_variable(name: str) -> str:
    return f"GYM_RAY_ADDRESS_{identifier(name)}"


def _amounts(service: RayService, pool: str | None) -> str:
    text = "" if service.num_cpus is None else f" --num-cpus={service.num_cpus}"
    text += "" if service.num_gpus is None else f" --num-gpus={service.num_gpus}"
    resources = service.resources.get(pool) if pool else None
    return text + (f" --resources={shlex.quote(json.dumps(resources))}" if resources else "")
