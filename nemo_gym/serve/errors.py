"""What can go wrong before a server serves."""

from nemo_gym.errors import GymError


class ServeError(GymError):
    """A server can't be served as asked."""


class BusyPortError(ServeError):
    """Somebody else listens where the server should."""


class UnreachableHeadError(ServeError, ValueError):
    """No head server answers where one is expected."""


class WorkerError(ServeError):
    """A worker of a server with several ended by itself."""


class OpenFilesError(ServeError):
    """The system lets a process open fewer files than it needs sockets."""
