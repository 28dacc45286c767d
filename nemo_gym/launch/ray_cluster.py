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
from nemo_gym.launch.ray_address import AUTO, find_cluster, is_started_here, none_here
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
            if address and is_started_here(address):
                _use_own_token()
        started: list[str] = []
        before = descendants()
        with _own_signals():
            join_or_start(ray, address or None, started.append, log_to_driver=shows_logs)
        dismiss = guard(descendants() - before) if started else None
        _remember(config, str(ray.get_runtime_context().gcs_address))
    except ImportError as error:
        raise LaunchError(f"A server needs Ray, which can't be imported ({error}): install ray[default].") from error
    except LaunchError:
        raise
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise _explained(error, address) from error
    except Exception as error:  # Ray's own AuthenticationError is none of those
        if not _wants_token(error):
            raise
        raise _explained(error, address) from error
    return lambda: _leave(ray, config, configured, dismiss)


def _use_own_token() -> None:
    """Have Ray send this user's token, if there is one, to the cluster of this machine.

    `ray start` asks for it as soon as it is there, and `ray.init` sends it only to the cluster that it finds itself: an
    address may be anybody's.
    """
    with contextlib.suppress(ImportError):
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

        maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _wants_token(error: BaseException | None) -> bool:
    while error is not None:
        if type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _explained(error: Exception, address: str) -> LaunchError:
    versions = _VERSIONS.findall(str(error))
    if len(versions) == 2:
        (ray, python), (own_ray, own_python) = versions
        return LaunchError(
            f"The Ray cluster at {address} runs Ray {ray} on Python {python}, this installation Ray {own_ray} on "
            f"Python {own_python}: both must be the same, so start the cluster with this installation's `ray`, or use "
            f"the cluster's Python here."
        )
    if _wants_token(error):
        return LaunchError(
            f"The Ray cluster at {address} asks for a token: export RAY_AUTH_MODE=token, with the token of the head's "
            "machine (its ~/.ray/auth_token) in ~/.ray/auth_token or RAY_AUTH_TOKEN here, or start the cluster with "
            "RAY_AUTH_MODE=disabled."
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
