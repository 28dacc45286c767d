"""What can be wrong with stored rows and rollouts."""

from __future__ import annotations

from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import GymError


class ResultsFileError(ConfigError):
    """A line of a rows or rollouts file can't be used."""


class MismatchedRolloutsError(GymError, ValueError):
    """Rows and rollouts don't belong together: a key occurs twice, or lacks its counterpart."""


class MissingPackageError(GymError, ImportError):
    """An optional package is needed for what was asked."""
