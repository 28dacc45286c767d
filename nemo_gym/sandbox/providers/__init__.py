"""Where sandboxes come from."""

from nemo_gym.sandbox.providers.base import (
    ConnectableProvider,
    SandboxProvider,
    SupportsSandboxBackgroundServices,
    SupportsSandboxEndpoint,
    SupportsSandboxNetwork,
    SupportsSandboxPauseResume,
    SupportsSandboxPortForwarding,
    SupportsSandboxPty,
    SupportsSandboxPtyAttach,
    SupportsSandboxRuntimeRequirements,
    SupportsSandboxSharedStorage,
)
from nemo_gym.sandbox.providers.registry import create_provider, get_provider_class, list_providers, register_provider

__all__ = [
    "ConnectableProvider",
    "SandboxProvider",
    "SupportsSandboxBackgroundServices",
    "SupportsSandboxEndpoint",
    "SupportsSandboxNetwork",
    "SupportsSandboxPauseResume",
    "SupportsSandboxPortForwarding",
    "SupportsSandboxPty",
    "SupportsSandboxPtyAttach",
    "SupportsSandboxRuntimeRequirements",
    "SupportsSandboxSharedStorage",
    "create_provider",
    "get_provider_class",
    "list_providers",
    "register_provider",
]
