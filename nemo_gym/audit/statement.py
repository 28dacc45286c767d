"""What an environment says about itself, for the audit: right answers, and which rewards are high and low."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.testing.replies import Replies

Row = dict[str, Any]
"""A row of the environment's data, as its file has it."""

Judge = tuple[str, str] | Callable[[str, bool, Row], str]
"""What a fair judge says: of a right answer and of a wrong one, or from (prompt, whether it is right, row)."""

Score = float | Callable[[Row], float]

WRONG = "I have thought about it for a while, and I can't say."


@dataclass(frozen=True, kw_only=True)
class Audit:
    """How an environment is audited.

    `reference` gives the right replies to a row. A reward of at least `full` is one in full, one of at most `low` is
    none. Environments that ask a judge say what a fair one answers. `wrong` is an answer that looks plausible and isn't
    right; tricks go with it. `tricks` are the environment's own, beside those every environment gets, and `labels` what
    its judge could be made to say; `not_tricks` says why one is none here, by its name. `overrides` are for the config.
    """

    reference: Callable[[Row], Replies] | None = None
    no_reference: str = ""
    full: Score = 1.0
    low: Score = 0.0
    judge: Judge | None = None
    wrong: Callable[[Row], Replies] | None = None
    labels: tuple[str, ...] = ()
    tricks: Mapping[str, Callable[[Row], Replies]] = field(default_factory=dict)
    not_tricks: Mapping[str, str] = field(default_factory=dict)
    rows: int = 5
    overrides: tuple[str, ...] = ()

    def full_for(self, row: Row) -> float:
        return self.full(row) if callable(self.full) else self.full

    def low_for(self, row: Row) -> float:
        return self.low(row) if callable(self.low) else self.low
