"""What can be wrong with a request for a health check."""

from __future__ import annotations

from nemo_gym.errors import GymError


class HealthCheckError(GymError, ValueError):
    """A path or the name of a check is wrong."""
