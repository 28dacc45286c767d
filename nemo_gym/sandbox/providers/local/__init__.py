"""Commands on this machine, without isolation."""

from nemo_gym.sandbox.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
