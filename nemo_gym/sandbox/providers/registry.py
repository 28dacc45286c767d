"""Providers by name: registered here, built in, or offered by installed packages."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, cast

from nemo_gym.config.hints import did_you_mean
from nemo_gym.sandbox.errors import SandboxConfigError
from nemo_gym.sandbox.providers.base import SandboxProvider

ENTRY_POINT_GROUP = "nemo_gym.sandbox_providers"

ProviderClass: TypeAlias = type[SandboxProvider]

_BUILT_IN = {
    "apptainer": "nemo_gym.sandbox.providers.apptainer:ApptainerProvider",
    "docker": "nemo_gym.sandbox.providers.docker:DockerProvider",
    "local": "nemo_gym.sandbox.providers.local:LocalProvider",
    "namespaces": "nemo_gym.sandbox.providers.namespaces:NamespacesProvider",
}
_KNOWN_ELSEWHERE = ("daytona", "e2b", "ecs_fargate", "enroot", "opensandbox", "openshell")
_registered: dict[str, ProviderClass] = {}


def register_provider(name: str, provider_class: ProviderClass, *, override: bool = False) -> None:
    """Make a provider known by a name, before built-in ones and those of packages.

    Raises ValueError when the name is taken by a registered or built-in provider, unless `override`.
    """
    if not override and (name in _registered or name in _BUILT_IN):
        raise SandboxConfigError(f"There is a sandbox provider `{name}` already: pass override=True to replace it.")
    _registered[name] = provider_class


def list_providers() -> list[str]:
    """The names of all providers, sorted."""
    return sorted({*_registered, *_BUILT_IN, *_offered()})


def get_provider_class(name: str) -> ProviderClass:
    """The class of a provider, imported now. Raises ValueError listing all names when there is none of that name."""
    offered = _offered()
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        if name in offered:
            warnings.warn(
                f"the built-in sandbox provider {name!r} hides the one of {offered[name].value}", stacklevel=2
            )
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast(ProviderClass, getattr(importlib.import_module(module), attribute))
    if name in offered:
        return cast(ProviderClass, offered[name].load())
    raise SandboxConfigError(_unknown(name))


def create_provider(config: Mapping[str, Any]) -> SandboxProvider:
    """The provider that `{name: options}` describes; None as options means the defaults.

    Raises ValueError for other than one name, an unknown name or options the provider doesn't have.
    """
    if len(config) != 1:
        raise SandboxConfigError(f"A sandbox provider is `{{name: options}}` with one name, not {sorted(config)}.")
    ((name, options),) = config.items()
    if options is not None and not isinstance(options, Mapping):
        raise SandboxConfigError(f"The options of the sandbox provider `{name}` must be a mapping, not {options!r}.")
    provider_class = get_provider_class(str(name))
    try:
        return provider_class(**{str(key): value for key, value in (options or {}).items()})
    except TypeError as error:
        raise SandboxConfigError(f"The sandbox provider `{name}` can't be made from its options: {error}.") from error


def _offered() -> dict[str, EntryPoint]:
    """Providers of installed packages, by name; importing none."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in found and found[entry.name].value != entry.value:
            raise SandboxConfigError(
                f"Two packages offer a sandbox provider `{entry.name}`: {found[entry.name].value} and {entry.value}. "
                f"Uninstall one of them."
            )
        found[entry.name] = entry
    return found


def _unknown(name: str) -> str:
    names = list_providers()
    reason = " (it isn't part of this package)" if name in _KNOWN_ELSEWHERE else ""
    return (
        f"There is no sandbox provider `{name}`{reason}; there are {', '.join(names)}.{did_you_mean(name, names)} "
        f"Others come from packages with an entry point in the group {ENTRY_POINT_GROUP}, or from register_provider."
    )
