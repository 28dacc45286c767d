"""Ray, for the runs that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from nemo_gym.config.keys import RAY_HEAD_NODE_ADDRESS_KEY_NAME
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.serve.ray_cluster import get_ray, join_or_start, shut_down_own_cluster

if TYPE_CHECKING:
    from omegaconf import DictConfig


def is_wanted(plans: Sequence[ServerPlan], config: DictConfig) -> bool:
    """Whether anything asks for Ray: a configured head, or a component that uses it."""
    return bool(config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME)) or any(plan.needs_ray for plan in plans)


def connect(config: DictConfig) -> Callable[[], None]:
    """Join the configured cluster (`auto` too), or the one this process already uses, or start one.

    The address is put into the config, for the servers. Returns what ends a cluster that was started here. Raises
    LaunchError when the cluster can't be joined or started.
    """
    address = config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME)
    try:
        ray = get_ray()
        join_or_start(ray, address, lambda _: None)
        _remember(config, str(ray.get_runtime_context().gcs_address))
    except ImportError as error:
        raise LaunchError(f"A server needs Ray, which can't be imported ({error}): install ray[default].") from error
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = f"the cluster at {address} can't be joined" if address else "a local cluster can't be started"
        raise LaunchError(f"Ray: {where} ({error}): check +{RAY_HEAD_NODE_ADDRESS_KEY_NAME}.") from error
    return lambda: _leave(ray, config, address)


def _leave(ray: ModuleType, config: DictConfig, configured: str | None) -> None:
    """End our own cluster, and have a later run in this process not look for it."""
    shut_down_own_cluster(ray)
    _remember(config, configured)


def _remember(config: DictConfig, address: str | None) -> None:
    from omegaconf import flag_override

    with flag_override(config, ["readonly", "struct"], False):
        config[RAY_HEAD_NODE_ADDRESS_KEY_NAME] = address
