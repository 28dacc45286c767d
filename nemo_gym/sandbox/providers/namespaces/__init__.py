"""Commands of this machine in namespaces of their own."""

from nemo_gym.sandbox.providers.namespaces.provider import NamespacesProvider

__all__ = ["NamespacesProvider"]
