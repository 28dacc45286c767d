"""Which server the current outbound request goes to, for metrics of the connection pool."""

from contextvars import ContextVar

_SERVER_NAME: ContextVar[str] = ContextVar("nemo_gym_destination_server", default="external")
