"""What a person sees while rollouts are collected: one live line, and notices above it."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

_SECONDS_BETWEEN_LINES_OF_A_LOG = 30.0
_SECONDS_BETWEEN_REDRAWINGS = 1.0


class NoticeLimit:
    """Lets the first few notices of a kind through, then says once that the rest is only counted."""

    def __init__(self, shown: int, afterwards: str) -> None:
        self._left = shown
        self._afterwards = afterwards

    def __call__(self, text: str) -> str | None:
        """The text to show for a notice, None for nothing."""
        self._left -= 1
        if self._left >= 0:
            return text
        return self._afterwards if self._left == -1 else None


class NoticeRate:
    """Lets one notice of a kind through in some seconds; the next one says how many were left out since."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._told: dict[Hashable, tuple[float, int]] = {}

    def __call__(self, kind: Hashable, text: str) -> str | None:
        """The text to show for a notice, None for nothing."""
        at, left_out = self._told.get(kind, (-math.inf, 0))
        now = self._now()
        if now - at < self._seconds:
            self._told[kind] = (at, left_out + 1)
            return None
        self._told[kind] = (now, 0)
        return f"{text} [and {left_out} more like it in the last {now - at:.0f} s]" if left_out else text


class _LogLines:
    """A log as tqdm's screen: every redrawing is a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> None:
        if line := text.strip():
            self._stream.write(line + "\n")

    def flush(self) -> None:
        self._stream.flush()


class CollectionProgress:
    """The progress line on stderr: redrawn on a terminal, seldom repeated in a log."""

    def __init__(self, *, total: int, done: int) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._bar = tqdm(
            desc="Collecting rollouts",
            total=total,
            initial=done,
            file=sys.stderr if self._is_terminal else _LogLines(sys.stderr),
            dynamic_ncols=self._is_terminal,
            mininterval=0.1 if self._is_terminal else _SECONDS_BETWEEN_LINES_OF_A_LOG,
        )
        self._counts = {"failed": 0, "retried": 0, "not started": 0}
        self._ending: Callable[[], str] = str

    def __enter__(self) -> CollectionProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def show(self, ending: Callable[[], str]) -> None:
        """Have the line end with what this returns, as long as rollouts are left."""
        self._ending = ending
        if text := self._postfix(self._bar.n):
            self._bar.set_postfix_str(text)

    @asynccontextmanager
    async def kept_fresh(self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep) -> AsyncIterator[None]:
        """Inside, the line tells how things stand though no rollout has ended yet."""
        redrawing = asyncio.create_task(self._redraw(pause))
        try:
            yield
        finally:
            redrawing.cancel()
            await asyncio.gather(redrawing, return_exceptions=True)

    async def _redraw(self, pause: Callable[[float], Awaitable[object]]) -> None:
        seconds = _SECONDS_BETWEEN_REDRAWINGS if self._is_terminal else _SECONDS_BETWEEN_LINES_OF_A_LOG
        while True:
            await pause(seconds)
            if time.time() - getattr(self._bar, "last_print_t", 0.0) >= self._bar.mininterval:
                self._bar.set_postfix_str(self._postfix(self._bar.n))

    def advanced(self) -> None:
        self._bar.set_postfix_str(self._postfix(self._bar.n + 1), refresh=False)
        self._bar.update(1)

    def counted(self, what: str) -> None:
        """Add one to a count at the end of the line."""
        self._counts[what] += 1
        self._bar.set_postfix_str(self._postfix(self._bar.n), refresh=False)

    def _postfix(self, done: float) -> str:
        counts = (f"{name}={count}" for name, count in self._counts.items() if count)
        ending = "" if self._bar.total and done >= self._bar.total else self._ending()
        return ", ".join(filter(None, (*counts, ending)))

    def notice(self, text: str | None) -> None:
        """Print a line above the live one."""
        if text is None:
            return
        if self._is_terminal:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr)
