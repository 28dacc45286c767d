"""Packages that only some environments need."""

from importlib.util import find_spec

from nemo_gym.config.errors import ConfigError


def require_package(module: str, need: str) -> None:
    """Raise ConfigError where a module can't be found; `need` says who needs which package, and what for."""
    if find_spec(module) is None:
        raise ConfigError(
            f"{need}, which is not installed here: start it with `gym env start`, which installs its requirements.txt, "
            "or install that yourself."
        )
