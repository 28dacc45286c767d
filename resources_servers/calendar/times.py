"""Times of day and constraints, as rows and answers write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TWELVE_HOURS = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?(am|pm)")
_TWENTY_FOUR_HOURS = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_CONSTRAINT = re.compile(r"(before|after|at) (.*)|between (.*?) and (.*)", re.DOTALL)
_DAY = 24 * 60


class TimeError(ValueError):
    """A text is no time of day."""


def minutes_of(text: object) -> int:
    """Minutes after midnight of `10am`, `10:30pm`, `22:30`. Raises TimeError for anything else."""
    if isinstance(text, str):
        if match := _TWELVE_HOURS.fullmatch(text):
            hour, minute = int(match[1]), int(match[2] or 0)
            if 1 <= hour <= 12 and minute < 60:
                return hour % 12 * 60 + minute + (_DAY // 2 if match[3] == "pm" else 0)
        elif (match := _TWENTY_FOUR_HOURS.fullmatch(text)) and int(match[2]) < 60:
            found = int(match[1]) * 60 + int(match[2])
            if found <= _DAY:
                return found
        raise TimeError(f"{text[:80]!r} is no time of day")
    raise TimeError(f"a {type(text).__name__} is no time of day")


def time_of(minutes: int) -> str:
    """A time of day as people of twelve hours write it: `10am`, `1:30pm`."""
    hour, minute = divmod(minutes, 60)
    return f"{(hour - 1) % 12 + 1}{f':{minute:02}' if minute else ''}{'am' if hour < 12 else 'pm'}"


@dataclass(frozen=True)
class Window:
    """When an event may take place, in minutes after midnight; `start_at` fixes it."""

    start_from: int
    end_by: int
    start_at: int | None = None

    @classmethod
    def of(cls, min_time: object, max_time: object, constraint: str | None) -> Window:
        """From `before T`, `after T`, `between X and Y` or `at T`; other texts say nothing. Raises TimeError."""
        window = cls(minutes_of(min_time), minutes_of(max_time))
        match = _CONSTRAINT.fullmatch(constraint or "")
        if match is None:
            return window
        if match[1] is None:
            return window.within(minutes_of(match[3]), minutes_of(match[4]))
        time = minutes_of(match[2])
        if match[1] == "at":
            return cls(window.start_from, window.end_by, time)
        return window.within(0, time) if match[1] == "before" else window.within(time, _DAY)

    def within(self, start_from: int, end_by: int) -> Window:
        return Window(max(self.start_from, start_from), min(self.end_by, end_by), self.start_at)

    def has_room_for(self, start: int, duration: float) -> bool:
        """Whether an event may start then and last so many minutes."""
        is_on_time = self.start_at in (None, start)
        return is_on_time and start >= self.start_from and start + duration <= self.end_by
