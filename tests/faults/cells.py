"""The matrix: who is hurt, how, and when; which combinations can't exist; and a choice that has every pair."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product


class Victim(StrEnum):
    """`run` is `gym eval run` itself, launcher and collector in one process; the others are what their names say."""

    COLLECTOR = "collector"
    LAUNCHER = "launcher"
    ZYGOTE = "zygote"
    RESOURCES = "resources"
    AGENT = "agent"
    MODEL = "model"
    SHARD = "shard"
    RUN = "run"


class Fault(StrEnum):
    TERM = "TERM"
    KILL = "KILL"
    STOP = "STOP"
    RESET = "reset"
    FULL = "disk-full"


class Moment(StrEnum):
    STARTUP = "startup"
    TOOL = "mid-tool"
    VERIFY = "mid-verify"
    RECORD = "mid-record"
    AGGREGATE = "aggregating"


SERVERS = frozenset({Victim.RESOURCES, Victim.AGENT, Victim.MODEL, Victim.SHARD})
MATRIX_VICTIMS = tuple(victim for victim in Victim if victim is not Victim.RUN)


@dataclass(frozen=True, order=True)
class Cell:
    victim: Victim
    fault: Fault
    moment: Moment

    @property
    def name(self) -> str:
        return f"{self.victim}-{self.fault}-{self.moment}"

    @property
    def pairs(self) -> frozenset[frozenset[str]]:
        return frozenset(frozenset(pair) for pair in combinations((self.victim, self.fault, self.moment), 2))


def why_not(cell: Cell) -> str | None:
    """Why a combination can't exist; None for one that can."""
    match cell.victim, cell.fault, cell.moment:
        case Victim.ZYGOTE, Fault.FULL, _:
            return "the zygote writes no file"
        case victim, Fault.RESET, Moment.STARTUP if victim in SERVERS:
            return "a server has no connection before it serves"
        case Victim.COLLECTOR, Fault.RESET, Moment.STARTUP:
            return "the collector has no connection before it sends the first rollout"
        case Victim.LAUNCHER, Fault.FULL, moment if moment is not Moment.STARTUP:
            return "the launcher writes its run directory at startup only; the servers' logs there are their own cells"
    return None


PINNED = tuple(
    Cell(*key)
    for key in (
        (Victim.COLLECTOR, Fault.KILL, Moment.TOOL),
        (Victim.COLLECTOR, Fault.TERM, Moment.VERIFY),
        (Victim.COLLECTOR, Fault.FULL, Moment.RECORD),
        (Victim.COLLECTOR, Fault.KILL, Moment.RECORD),
        (Victim.LAUNCHER, Fault.KILL, Moment.TOOL),
        (Victim.ZYGOTE, Fault.KILL, Moment.VERIFY),
        (Victim.RESOURCES, Fault.KILL, Moment.VERIFY),
        (Victim.RESOURCES, Fault.STOP, Moment.AGGREGATE),
        (Victim.AGENT, Fault.KILL, Moment.TOOL),
        (Victim.MODEL, Fault.STOP, Moment.TOOL),
        (Victim.SHARD, Fault.KILL, Moment.TOOL),
    )
)
"""What happens to people most; the pairs that these leave open are filled in."""

OF_THE_RUN = tuple(
    Cell(Victim.RUN, fault, moment)
    for fault, moment in (
        (Fault.KILL, Moment.STARTUP),
        (Fault.TERM, Moment.STARTUP),
        (Fault.KILL, Moment.TOOL),
        (Fault.TERM, Moment.AGGREGATE),
        (Fault.STOP, Moment.VERIFY),
        (Fault.FULL, Moment.RECORD),
    )
)
"""Beyond the matrix: the one command most people use."""


def all_cells() -> list[Cell]:
    return [Cell(*key) for key in product(MATRIX_VICTIMS, Fault, Moment)]


def impossible() -> dict[Cell, str]:
    return {cell: reason for cell in all_cells() if (reason := why_not(cell)) is not None}


def pairwise() -> list[Cell]:
    """The pinned cells and, greedily, as many more as it takes to have every pair that can exist."""
    possible = [cell for cell in all_cells() if why_not(cell) is None]
    open_pairs = {pair for cell in possible for pair in cell.pairs}
    chosen: list[Cell] = []
    queue = list(PINNED)
    while queue or open_pairs:
        cell = queue.pop(0) if queue else max(possible, key=lambda each: len(each.pairs & open_pairs))
        chosen.append(cell)
        open_pairs -= cell.pairs
    return sorted(chosen, key=lambda cell: [list(kind).index(part) for kind, part in _parts(cell)])


def chosen_cells() -> list[Cell]:
    """What a whole run of the matrix runs, in order."""
    return [*pairwise(), *OF_THE_RUN]


def _parts(cell: Cell) -> list[tuple[type[StrEnum], StrEnum]]:
    return [(Victim, cell.victim), (Fault, cell.fault), (Moment, cell.moment)]
