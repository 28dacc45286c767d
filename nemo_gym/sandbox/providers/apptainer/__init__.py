"""An Apptainer instance for each sandbox, through the `apptainer` program."""

from nemo_gym.sandbox.providers.apptainer.provider import (
    ApptainerCreateConfig,
    ApptainerExecConfig,
    ApptainerProbeConfig,
    ApptainerProvider,
)

__all__ = ["ApptainerCreateConfig", "ApptainerExecConfig", "ApptainerProbeConfig", "ApptainerProvider"]
