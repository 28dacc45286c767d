"""What can go wrong with sandboxes, as one tree."""

from __future__ import annotations

from nemo_gym.errors import GymError


class SandboxError(GymError):
    """A sandbox can't be had or used as asked."""


class SandboxConfigError(SandboxError, ValueError):
    """A provider is configured or named wrongly."""


class SandboxUnavailableError(SandboxError, RuntimeError):
    """The program a provider drives is not installed here."""


class SandboxPathError(SandboxError, ValueError):
    """A path leads out of the folder that a sandbox may touch."""


class SandboxCreateError(SandboxError, RuntimeError):
    """The provider could not create the sandbox."""


class SandboxCreateVerificationError(SandboxCreateError):
    """The sandbox was created, but did not become usable."""


class SandboxPtyError(SandboxError, RuntimeError):
    """A terminal in a sandbox failed."""
