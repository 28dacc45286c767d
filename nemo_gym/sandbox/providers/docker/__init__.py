"""A container for each sandbox, through the `docker` program."""

from nemo_gym.sandbox.providers.docker.provider import (
    DockerCreateConfig,
    DockerExecConfig,
    DockerProbeConfig,
    DockerProvider,
)

__all__ = ["DockerCreateConfig", "DockerExecConfig", "DockerProbeConfig", "DockerProvider"]
