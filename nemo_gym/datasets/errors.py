"""What can be wrong with declared data sets and their rows."""

from __future__ import annotations

from nemo_gym.config.errors import ConfigError


class DatasetError(ConfigError, ValueError):
    """A data set can't be used as declared."""


class DatasetMissingError(DatasetError, AssertionError):
    """Files of declared data sets are not there."""


class MetricsConflictError(DatasetError):
    """The rows measure differently from what the metrics file beside them says."""
