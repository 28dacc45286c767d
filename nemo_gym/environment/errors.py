"""What can be wrong with an environment that is described, checked, handed on or made."""

from __future__ import annotations

from nemo_gym.config.errors import ConfigError


class ManifestError(ConfigError):
    """A manifest that is missing, can't be read, or says something it may not."""


class EnvironmentValidationError(ConfigError):
    """An environment whose files contradict each other."""


class EnvironmentOnboardingError(ConfigError):
    """A verifier that can't be exercised, or that doesn't do what its cases say."""


class EnvironmentPublicationError(ConfigError):
    """An environment that isn't ready for others."""


class ScaffoldError(ConfigError):
    """Files that can't be made."""


class ScaffoldConflictError(ScaffoldError):
    """Files that are in the way of those that would be made."""
