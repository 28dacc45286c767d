"""A run as it is right now, in data: its servers, its rollouts in flight, and what is wrong or slow, in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

VIEW_VERSION = 1

Stage = Literal["queued", "running", "retry", "seed", "agent", "model", "tool", "verify", "close"]


@dataclass
class ProcessView:
    """One process and the servers it holds. `answers` is False when it lives and said nothing just now.

    `is_there` is False when the system knows no process of its pid. `last_end` is how the one before it ended unasked.
    `cpu_s` and `memory_bytes` are of the whole tree below it; `silent_s` is for how long it has said nothing, `held`
    what its event loop has been at all the while, in words.
    """

    name: str
    servers: list[str]
    pid: int | None
    state: str
    restarts: int = 0
    last_end: str | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    answers: bool | None = None
    silent_s: float | None = None
    letter: str = ""
    held: str = ""
    is_there: bool = True


@dataclass
class ServerView:
    """One server. Ages and times in seconds, memory in bytes; None where nobody tells.

    Of several processes `pid` is the first's, `state` the worst, and figures are sums; servers that share processes
    have the same ones.
    """

    name: str
    server_type: str
    implementation: str
    pid: int | None
    processes: list[str]
    state: str
    restarts: int = 0
    uptime_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    in_flight: int | None = None
    oldest_s: float | None = None
    served: int | None = None
    sessions: int | None = None
    answers: bool | None = None
    url: str | None = None


@dataclass
class RolloutView:
    """One rollout in flight: in which stage, at which server, for how long there (`stage_s`) and altogether (`age_s`).

    `detail` is a tool's name or the path that was asked for. `retries` counts those in place.
    """

    rollout: str
    stage: Stage
    server: str
    stage_s: float
    age_s: float
    detail: str = ""
    retries: int = 0


@dataclass
class BackendView:
    """An endpoint of a model that the servers `of` a process may not call for `seconds`.

    It answered `status`; `refuses` says in words that it takes no calls of ours at all, None where it wants fewer.
    """

    url: str
    of: list[str]
    status: int | None
    seconds: float
    refuses: str | None = None


@dataclass
class WaitView:
    """An endpoint of a model that must answer before anything is sent; it has been waited for for `seconds`."""

    endpoint: str
    why: str
    seconds: float
    limit: float


@dataclass
class CollectorView:
    """A process that collects rollouts: how many have ended and how, retries in place, and its admission's bounds."""

    pid: int
    answers: bool
    done: int = 0
    failed: int = 0
    retries: int = 0
    per_second: float = 0.0
    states: dict[str, int] = field(default_factory=dict)
    admission: dict[str, Any] | None = None
    planned: int | None = None


@dataclass
class RunView:
    """`rollouts` has the longest in their stages first, and no more than were asked for; `stages` counts all of them.

    `findings` are sentences, the most important first.
    """

    as_of: float
    port: int
    pid: int
    command: str
    uptime_s: float | None
    findings: list[str] = field(default_factory=list)
    servers: list[ServerView] = field(default_factory=list)
    processes: list[ProcessView] = field(default_factory=list)
    collectors: list[CollectorView] = field(default_factory=list)
    backends: list[BackendView] = field(default_factory=list)
    waits: list[WaitView] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)
    rollouts: list[RolloutView] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"version": VIEW_VERSION, **asdict(self)}
