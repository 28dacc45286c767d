"""The model servers that can be found."""

from nemo_gym.config.components import ModelEntry, discover_models

__all__ = ["ModelEntry", "discover_models"]
