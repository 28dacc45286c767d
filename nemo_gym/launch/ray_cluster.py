"""Ray, for the runs that ask for it."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from nemo_gym.config.keys import RAY_HEAD_NODE_ADDRESS_KEY_NAME
from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.ray_address import AUTO, find_cluster, none_here
from nemo_gym.launch.ray_guard import descendants, guard
from nemo_gym.serve.ray_cluster import get_ray, join_or_start, shut_down_own_cluster

if TYPE_CHECKING:
    from omegaconf import DictConfig

_VERSIONS = re.compile(r"Ray:\s*(\S+)\s+Python:\s*(\S+)")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def is_wanted(plans: Sequence[ServerPlan], config: DictConfig) -> bool:
    """Whether anything asks for Ray: a configured head, or a component that uses it."""
    return bool(config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME)) or any(plan.needs_ray for plan in plans)


def connect(config: DictConfig, *, shows_logs: bool = True) -> Callable[[], None]:
    """Join the configured cluster (`auto` too), or the one this process already uses, or start one.

    The address is put into the config, for the servers. `shows_logs` is whether what tasks print is shown here. Returns
    what ends a cluster that was started here, and leaves one that was joined. Raises LaunchError when the cluster can't
    be joined or started.
    """
    configured = config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME)
    address = ""
    try:
        ray = get_ray()
        if not ray.is_initialized():
            address = find_cluster(configured)
        started: list[str] = []
        before = descendants()
        with _own_signals():
            join_or_start(ray, address or None, started.append, log_to_driver=shows_logs)
        dismiss = guard(descendants() - before) if started else None
        _remember(config, str(ray.get_runtime_context().gcs_address))
    except ImportError as error:
        raise LaunchError(f"A server needs Ray, which can't be imported ({error}): install ray[default].") from error
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if isinstance(error, LaunchError):
            raise
        raise _explained(error, address) from error
    return lambda: _leave(ray, config, configured, dismiss)


def _explained(error: Exception, address: str) -> LaunchError:
    versions = _VERSIONS.findall(str(error))
    if len(versions) == 2:
        (ray, python), (own_ray, own_python) = versions
        return LaunchError(
            f"The Ray cluster at {address} runs Ray {ray} on Python {python}, this installation Ray {own_ray} on "
            f"Python {own_python}: both must be the same, so start the cluster with this installation's `ray`, or use "
            f"the cluster's Python here."
        )
    if address == AUTO and isinstance(error, ConnectionError):
        return none_here()
    where = f"the cluster at {address} can't be joined" if address else "a local cluster can't be started"
    lines = " ".join(str(error).split())
    return LaunchError(f"Ray: {where} ({lines}): check +{RAY_HEAD_NODE_ADDRESS_KEY_NAME}.")


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handlers: Ray sets its own, with which a stop is no orderly one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _leave(ray: ModuleType, config: DictConfig, configured: str | None, dismiss: Callable[[], None] | None) -> None:
    """End our own cluster, and have a later run in this process not look for it."""
    shut_down_own_cluster(ray)
    if dismiss is not None:
        dismiss()
    _remember(config, configured)


def _remember(config: DictConfig, address: str | None) -> None:
    from omegaconf import flag_override

    with flag_override(config, ["readonly", "struct"], False):
        config[RAY_HEAD_NODE_ADDRESS_KEY_NAME] = address
