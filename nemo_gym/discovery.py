"""What can be found, and what configs say about it."""

from nemo_gym.config.environment_catalog import discover_environments
from nemo_gym.config.metadata import (
    ConfigMetadata,
    EnvironmentDetails,
    read_config_metadata,
    read_environment_details,
    read_resources_server_value,
)

__all__ = [
    "ConfigMetadata",
    "EnvironmentDetails",
    "discover_environments",
    "read_config_metadata",
    "read_environment_details",
    "read_resources_server_value",
]
