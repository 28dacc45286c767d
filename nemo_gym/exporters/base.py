"""What a tracker of experiments is to Gym."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config.notices import warn
from nemo_gym.config.secrets import MASK
from nemo_gym.errors import GymError


class ExporterError(GymError):
    """A tracker can't be used; always told as a warning, since a run does not depend on it."""


class BaseExporter(ABC):
    """A place that the config, the metrics and the rollouts of a run are sent to.

    To add one: subclass, and put the class into `EXPORTERS` under its name before the config is composed. Errors of any
    method but `is_configured` become warnings, each kind once.
    """

    name: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ()
    """Config keys that must all be set for this tracker to be used."""

    def __init__(self) -> None:
        self._complained: set[str] = set()
        self._variables: dict[str, str | None] = {}

    @classmethod
    def is_configured(cls, config: Mapping[str, Any]) -> bool:
        """Whether a config says all that is needed to open this tracker."""
        return all(setting(config, key) for key in cls.settings)

    @abstractmethod
    def setup(self, config: Mapping[str, Any]) -> None:
        """Open a run there. The config is the global one, secrets included: they are for signing in only."""

    @abstractmethod
    def teardown(self) -> None:
        """Send what is left and close the run."""

    @abstractmethod
    def _log_config(self, config: dict[str, Any]) -> None:
        """Send the config: plain data, secrets masked."""

    @abstractmethod
    def _log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        """Send numbers and texts by name."""

    @abstractmethod
    def _log_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        """Send records of rollouts; they can be read once."""

    def log_config(self, config: dict[str, Any]) -> None:
        self._guarded("the config", lambda: self._log_config(config))

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        self._guarded("metrics", lambda: self._log_metrics(metrics, step))

    def log_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        self._guarded("rollouts", lambda: self._log_rollouts(rollouts))

    def close(self) -> None:
        """Tear down, and take credentials out of this process's environment again."""
        self._guarded("the end of the run", self.teardown)
        self.abandon()

    def abandon(self) -> None:
        """Take back what `set_variable` did, for a tracker that could not be opened."""
        for name, before in self._variables.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        self._variables.clear()

    def set_variable(self, name: str, value: str) -> None:
        """Set an environment variable until the tracker is closed."""
        self._variables.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def _guarded(self, what: str, send: Callable[[], None]) -> None:
        try:
            send()
        except Exception as error:
            if what not in self._complained:
                self._complained.add(what)
                warn(f"{self.name}: {what} could not be sent ({reason(error)}). The run goes on.")


def setting(config: Mapping[str, Any], key: str) -> str | None:
    """A setting as text; None where it is absent, empty, masked or can't be resolved."""
    try:
        value = config.get(key)
    except OmegaConfBaseException:
        return None
    return None if value in (None, "", MASK) else str(value)


def sdk(module: str, name: str) -> Any:
    """The library of a tracker. Raises ExporterError naming the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExporterError(
            f"the package `{name}` can't be imported ({error}): install it with `uv pip install 'nemo-gym[exporters]'`"
        ) from error


def reason(error: Exception) -> str:
    """An error on one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, GymError) else f"{type(error).__name__}: {text}"
