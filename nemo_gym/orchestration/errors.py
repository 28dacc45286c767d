"""What can go wrong between a submit config and its jobs."""

from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import GymError


class SubmitConfigError(ConfigError):
    """A submit config says something that can't be run."""


class SubmissionError(GymError):
    """Jobs could not be handed over, or nobody can say what became of them."""


class JobRecordError(GymError):
    """A record of submitted jobs is missing, is another one, or can't be read."""
