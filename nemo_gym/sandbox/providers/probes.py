"""Whether a fresh sandbox answers before it is handed out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nemo_gym.sandbox.errors import SandboxCreateVerificationError
from nemo_gym.sandbox.providers.base import SandboxExecResult

PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Probe:
    """A command that a usable sandbox runs `stable_count` times in a row, `stable_delay_s` apart, within `deadline_s`.

    It must end with 0 within `timeout_s`, and print `expected_stdout` if that is given. None as command asks nothing.
    """

    command: str | None = None
    expected_stdout: str | None = None
    timeout_s: float = 30
    deadline_s: float | None = None
    stable_count: int = 1
    stable_delay_s: float = 0

    async def verify(self, run: Callable[[str, float], Awaitable[SandboxExecResult]], sandbox_id: str) -> None:
        """Raises SandboxCreateVerificationError with what the last try gave, at once when there is no deadline."""
        if self.command is None:
            return
        end = time.monotonic() + (self.deadline_s or 0)
        successes = 0
        while successes < self.stable_count:
            result = await run(self.command, self.timeout_s)
            if self._is_passed(result):
                successes += 1
                await asyncio.sleep(self.stable_delay_s if successes < self.stable_count else 0)
                continue
            successes = 0
            if time.monotonic() >= end:
                raise SandboxCreateVerificationError(
                    f"The sandbox {sandbox_id} did not become usable: `{self.command}` gave {result.return_code}, "
                    f"{(result.stdout or '').strip()[-500:]!r}, {(result.stderr or '').strip()[-500:]!r}."
                )
            await asyncio.sleep(PAUSE_SECONDS)

    def _is_passed(self, result: SandboxExecResult) -> bool:
        if result.return_code != 0 or result.error_type is not None:
            return False
        return self.expected_stdout is None or (result.stdout or "").strip() == self.expected_stdout.strip()
