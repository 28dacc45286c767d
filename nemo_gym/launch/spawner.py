"""Who makes server processes: a fork server on Linux, plain `exec` elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.process import ServerProcess


class Spawner(Protocol):
    """Makes processes, and says when one of them ends."""

    on_death: Callable[[ServerProcess], None]

    @property
    def environment(self) -> Mapping[str, str]:
        """What a request's `environment` and `unset` change."""

    def facts(self) -> PreloadFacts:
        """What a fork would find; waits until that is known."""

    def spawn(self, request: SpawnRequest, fds: Sequence[int]) -> ServerProcess:
        """Make the process. `fds` match the request's roles and stay the caller's to close."""

    def own(self, directory: Path) -> None:
        """Name the run's folder, which goes with the launcher if that is killed."""

    def close(self, grace: float) -> None:
        """End what still runs: TERM, `grace` seconds together, KILL for the rest. Returns when nothing is left."""
