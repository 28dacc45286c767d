"""What can be wrong with a configuration, as one tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from nemo_gym.errors import GymError


class ConfigError(GymError):
    """A mistake in a config file, an override or a selector.

    `problems` holds the single errors when one report carries several.
    """

    problems: tuple[ConfigError, ...] = ()


class ConfigPathNotFoundError(ConfigError, FileNotFoundError):
    """A file named in `config_paths` exists under no search root."""


class MalformedConfigPathsError(ConfigError, ValueError):
    """`config_paths` is not a list of strings."""


class NoServerInstancesError(ConfigError, ValueError):
    """The config defines no server at all."""


class ConfigMissingValuesError(ConfigError, ValueError):
    """Some values are still `???`."""


class ConfigInterpolationError(ConfigError, ValueError):
    """A `${...}` can't be resolved."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A reference names a server the config doesn't define."""


class InheritPathNotFoundError(ConfigError, ValueError):
    """`_inherit_from` or `_copy` names a path the config doesn't define."""


class AlmostServerError(ConfigError, ValueError):
    """A block looks like a server but fails its checks."""


class AgentWithoutEnvironmentServerError(ConfigError, ValueError):
    """An agent that no environment server fronts, where that was forbidden."""


class AmbiguousEnvironmentServerError(ConfigError, ValueError):
    """Several environment servers answer the description."""


class AmbiguousAgentRenameError(ConfigError, ValueError):
    """An inherited-away agent has several heirs while a reference still names it."""


class AgentCompositionError(ConfigError, ValueError):
    """An unbound agent can't be bound to the environment's agents."""


class UnsupportedAgentPairingError(ConfigError, ValueError):
    """A resources server doesn't list the agent among its `allowed_agents`."""


class UnsupportedModelPairingError(ConfigError, ValueError):
    """A resources server doesn't list the model server's type among its `allowed_model_types`."""


class UnsupportedAgentOverrideError(ConfigError, ValueError):
    """An override addresses an agent instance that composition didn't create, or a field it doesn't have."""


class NoPortLeftError(ConfigError, RuntimeError):
    """The port range holds no port that can be bound."""


class RegistryError(ConfigError):
    """A catalog name is unknown or means several things."""


def raise_problems(problems: Sequence[ConfigError]) -> None:
    """Raise what was found, all in one report; nothing when nothing was found.

    One problem is raised as it is. Several become one error with every message in it; it has the first type more
    particular than ConfigError, so that a caller who catches that type still does.
    """
    if problems:
        _raise_all(problems)


def _raise_all(problems: Sequence[ConfigError]) -> NoReturn:
    if len(problems) == 1:
        raise problems[0]
    lines = "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, start=1))
    kind = next((type(problem) for problem in problems if type(problem) is not ConfigError), ConfigError)
    report = kind(f"{len(problems)} problems in the configuration:\n{lines}")
    report.problems = tuple(problems)
    raise report
