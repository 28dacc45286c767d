"""What can go wrong with an audit itself."""

from nemo_gym.errors import GymError


class AuditError(GymError):
    """An environment can't be audited."""
