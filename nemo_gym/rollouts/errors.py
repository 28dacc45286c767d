"""What can stop a collection, as one tree."""

from __future__ import annotations

from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import GymError


class RolloutError(GymError):
    """A collection can't start, go on or be believed."""


class RowError(ConfigError, ValueError):
    """An input line is no usable task; the message names file and line."""


class PlanError(RowError):
    """The plan of a result set is damaged."""


class RoutingError(ConfigError, ValueError):
    """Rows can't be matched with the servers that should run them."""


class OutputError(RolloutError):
    """Results can't be written where they should go."""


class LostResultsError(OutputError):
    """Somebody deleted, replaced or cut a result file while it was written: more was measured than is on file."""


class ResumeRefusedError(RolloutError):
    """Results can't be gone on with: they were made by another config, model, input or code."""


class ShardsRefusedError(RolloutError):
    """Result files don't belong together, or hold the same rollout twice."""


class ServersUnavailableError(RolloutError):
    """The servers a collection needs don't answer."""


class ServersLostError(RolloutError):
    """The servers of a collection ended while it ran; what was done is saved."""


class NothingMeasuredError(RolloutError, RuntimeError):
    """Rows were there, but not one of them was scored."""


class IncompleteRunError(RolloutError, RuntimeError):
    """`require_complete` was asked for and some rollouts are missing from the score."""


class StoppedError(RolloutError):
    """Ctrl-C ended the collection; what was done is saved."""

    exit_code = 130


class TerminatedError(StoppedError):
    """The system ended the collection (SIGTERM, walltime); what was done is saved."""

    exit_code = 75


class ReplyError(RolloutError, ValueError):
    """A server answered a rollout with something that is no result."""
