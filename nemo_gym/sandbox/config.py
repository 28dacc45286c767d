"""Which provider a config means: by the name of a block in it, or given in place.

A block has one key, the provider's name, with the provider's options under it, and may have `default_metadata`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from nemo_gym.config.hints import did_you_mean
from nemo_gym.sandbox.errors import SandboxConfigError

DEFAULT_METADATA_KEY = "default_metadata"


def resolve_provider_config(
    sandbox_provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`{provider: options}` as plain data, for `create_provider`.

    Raises SandboxConfigError (a ValueError) for an empty or unknown name, other than one provider, or wrong types.
    """
    block, place = _block(sandbox_provider, named_configs)
    providers = [key for key in block if key != DEFAULT_METADATA_KEY]
    if len(providers) != 1:
        found = ", ".join(providers) or "none"
        raise SandboxConfigError(f"{place} must name exactly one provider; it names {found}.")
    (provider,) = providers
    options = {} if block[provider] is None else block[provider]
    if not isinstance(options, dict):
        raise SandboxConfigError(f"{place}: the options of `{provider}` must be a mapping, not {options!r}.")
    return {provider: options}


def resolve_provider_metadata(
    sandbox_provider: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The `default_metadata` of the block: what every sandbox of it is labelled with. Raises SandboxConfigError."""
    block, place = _block(sandbox_provider, named_configs)
    metadata = block.get(DEFAULT_METADATA_KEY) or {}
    if not isinstance(metadata, dict):
        raise SandboxConfigError(f"{place}: `{DEFAULT_METADATA_KEY}` must be a mapping, not {metadata!r}.")
    return metadata


def _block(reference: str | Mapping[str, Any], named: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    if isinstance(reference, str):
        return _named_block(reference, named or {}), f"The sandbox config `{reference}`"
    if not isinstance(reference, Mapping):
        raise SandboxConfigError(f"sandbox_provider must be a name or a mapping, not {type(reference).__name__}.")
    return _plain(reference), "sandbox_provider"


def _named_block(name: str, named: Mapping[str, Any]) -> dict[str, Any]:
    if not name.strip():
        raise SandboxConfigError("sandbox_provider is empty: name a sandbox config, such as `sandbox`.")
    if name not in named:
        candidates = _candidates(named)
        known = f"sandbox configs are: {', '.join(candidates)}" if candidates else "there is none in the config"
        raise SandboxConfigError(
            f"There is no sandbox config `{name}`; {known}.{did_you_mean(name, candidates)} "
            f"Add a file such as nemo_gym/sandbox/providers/local/configs/local.yaml to config_paths."
        )
    block = named[name]
    if not isinstance(block, Mapping):
        raise SandboxConfigError(f"The sandbox config `{name}` must be a mapping, not {block!r}.")
    return _plain(block)


def _candidates(named: Mapping[str, Any]) -> list[str]:
    """Names of blocks that could be sandbox configs: one key naming a provider."""
    from nemo_gym.sandbox.providers.registry import list_providers

    providers = set(list_providers())
    return [
        str(name)
        for name in named
        if isinstance(block := named[name], Mapping) and set(map(str, block)) - {DEFAULT_METADATA_KEY} <= providers
        if block
    ]


def _plain(block: Mapping[str, Any]) -> dict[str, Any]:
    if "omegaconf" in sys.modules:
        from omegaconf import OmegaConf

        if OmegaConf.is_config(block):
            return {str(key): value for key, value in OmegaConf.to_container(block, resolve=True).items()}  # type: ignore[union-attr]
    return {str(key): _copied(value) for key, value in block.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    return [_copied(item) for item in value] if isinstance(value, list) else value
