"""A step of a job: one command, where it runs, what it is given."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_gym.config.secrets import looks_like_secret_key
from nemo_gym.orchestration.layout import Span
from nemo_gym.orchestration.values import EnvValue


@dataclass(frozen=True)
class Health:
    """When a step counts as ready: on each of these nodes a GET is answered, or without a path, a port is open."""

    nodes: tuple[int, ...]
    port: int
    path: str | None
    seconds: int


@dataclass(frozen=True)
class StepEnv:
    """Variables of a step: those anyone may read, those the job has itself, and those kept in a file of their own."""

    public: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=dict)
    private: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, str], environment: Mapping[str, str]) -> "StepEnv":
        """Sort prefixed values. What comes from here, and what is named like a secret, is private."""
        result = cls()
        for name, text in values.items():
            value = EnvValue.of(text)
            if value.kind == "runtime":
                result.runtime[name] = value.text
            elif value.kind == "host":
                result.private[name] = environment[value.text]
            else:
                (result.private if looks_like_secret_key(name) else result.public)[name] = value.text
        return result

    def with_public(self, values: Mapping[str, str]) -> "StepEnv":
        """The same with further variables, which those that are there stand before."""
        mine = {*self.public, *self.runtime, *self.private}
        added = {name: value for name, value in values.items() if name not in mine}
        return StepEnv({**added, **self.public}, self.runtime, self.private)

    def with_private(self, values: Mapping[str, str]) -> "StepEnv":
        return StepEnv(self.public, self.runtime, {**self.private, **values})

    def file(self) -> str | None:
        """What the file of private values says; None without any."""
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in self.private.items()]
        return "".join(lines) or None


@dataclass(frozen=True)
class Step:
    """A command in the shell's words, run once on each node of its span.

    It serves at its `ports` on the nodes of its health, where nobody else may.
    """

    name: str
    command: str
    span: Span
    env: StepEnv = StepEnv()
    container: str | None = None
    mounts: tuple[str, ...] = ()
    health: Health | None = None
    ports: tuple[int, ...] = ()

    def needed_files(self) -> list[str]:
        """Paths that must exist where the job runs: sources of mounts, and an image that is a file."""
        sources = [mount.partition(":")[0] for mount in self.mounts]
        is_file = self.container is not None and self.container.startswith(("/", "./", "../", "~"))
        return [*sources, *([self.container] if is_file and self.container else [])]
