"""Rollouts in whose midst a server had to be ended because it got stuck there: what their callers are told.

The launcher, which ends the server, writes them to a file in the run's folder; the process that takes its place answers
with them.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from nemo_gym.config.handover import RUN_DIR_ENV
from nemo_gym.schema.failure_kinds import AGENT_RUN_ERROR
from nemo_gym.serve.failures import Cause
from nemo_gym.serve.stages import stage_of

FILE_NAME = "charged.jsonl"
_HOLDS_SECONDS = 300.0
_RETRY = re.compile(r"\.r\d+(?=$|-a\d+$)")


@dataclass(frozen=True)
class Charge:
    """`rollout` got `server`, which is of a type, stuck at `path`; `message` says so. `at` is on the wall clock."""

    rollout: str
    server: str
    server_type: str
    path: str
    message: str
    at: float = field(default_factory=time.time)

    def cause(self) -> Cause:
        """The failure that this is: that of a stage which took too long, else the agent's."""
        stage = stage_of(self.server_type, self.path)
        kind = AGENT_RUN_ERROR if stage is None else stage.failure_kind
        return Cause(self.server, "StuckServerError", self.message, kind=kind, stage=stage.code if stage else None)


def write_charge(run_directory: Path, charge: Charge) -> None:
    """Raises OSError."""
    descriptor = os.open(run_directory / FILE_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(charge)) + "\n")


class Charges:
    """Those that were there when they were first asked for: whoever takes a stuck process's place comes after them."""

    @cached_property
    def _by_rollout(self) -> dict[str, Charge]:
        run_directory = os.environ.get(RUN_DIR_ENV)
        try:
            lines = (Path(run_directory or ".") / FILE_NAME).read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        charges = (Charge(**json.loads(line)) for line in lines) if run_directory else ()
        return {_whole(charge.rollout): charge for charge in charges}

    def of(self, rollout: str | None, *, is_repeated: bool) -> Charge | None:
        """What the rollout of a call is charged with: one that came before, or is for a later try in place.

        Another collection from the same servers has rollouts of the same names.
        """
        if not rollout or not self._by_rollout or not (is_repeated or _RETRY.search(rollout)):
            return None
        charge = self._by_rollout.get(_whole(rollout))
        return charge if charge is not None and time.time() - charge.at < _HOLDS_SECONDS else None


def _whole(rollout: str) -> str:
    """The rollout, of which an id may name one try."""
    return _RETRY.sub("", rollout)
