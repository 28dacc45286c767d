"""The resources servers that can be found."""

from nemo_gym.config.components import ResourcesServerEntry, discover_resources_servers

__all__ = ["ResourcesServerEntry", "discover_resources_servers"]
