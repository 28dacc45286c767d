"""What can go wrong between a config and servers that answer.

Every class is a RuntimeError too: trainers that drive a run as a library catch that.
"""

from nemo_gym.errors import GymError


class LaunchError(GymError, RuntimeError):
    """A run couldn't be started, or ended by itself."""


class VenvError(LaunchError):
    """A server's packages can't be had."""


class PortTakenError(LaunchError):
    """Somebody else listens where the config says we should."""


class ServerFailedError(LaunchError):
    """A server ended before it was asked to; the message carries its own last lines."""


class ServersLateError(LaunchError):
    """Some servers weren't ready in time."""


class RunNotFoundError(LaunchError):
    """No run, or no server of a run, answers the description."""
