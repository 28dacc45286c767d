"""The catalog of everything that can be run."""

from nemo_gym.config.environment_catalog import (
    EnvironmentCatalogEntry,
    discover_environment_catalog,
    discover_environments,
    resolve_catalog_entry,
)
from nemo_gym.config.errors import RegistryError

__all__ = [
    "EnvironmentCatalogEntry",
    "RegistryError",
    "discover_environment_catalog",
    "discover_environments",
    "resolve_catalog_entry",
]
