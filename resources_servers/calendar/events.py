"""Finding the calendar in an answer, and holding it against the events that were asked for."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym.verifiers.verdicts import RowError
from resources_servers.calendar.times import TimeError, Window, minutes_of

_MARK = re.compile(r"[\[\]{}]")


@dataclass(frozen=True)
class Wanted:
    """An event that was asked for: its minutes, and when it may be."""

    duration: float
    window: Window


def wanted_events(state: Mapping[str, Any]) -> dict[str, Wanted]:
    """The events of `exp_cal_state` by id; entries that are null, as data sets fill them in, are none.

    Raises RowError for an entry without its fields or with a time that is none.
    """
    return {event_id: _wanted(event_id, event) for event_id, event in state.items() if event is not None}


def _wanted(event_id: str, event: Any) -> Wanted:
    try:
        duration, constraint = event["duration"], event["constraint"]
        window = Window.of(event["min_time"], event["max_time"], constraint)
    except (KeyError, TypeError, TimeError) as error:
        raise RowError(f"exp_cal_state[{event_id!r}] is no event: {error!r}") from error
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise RowError(f"exp_cal_state[{event_id!r}] has no duration in minutes: {duration!r}")
    return Wanted(duration, window)


def is_right(text: str, wanted: Mapping[str, Wanted], *, unique_events: bool = False) -> bool:
    """Whether an answer holds the wanted events, all at times they may be and no two at once.

    `unique_events`: an event that is listed twice is one too many.
    """
    if not text or "<think>" in text:
        return False
    if not wanted:
        return True
    events = listed_events(text)
    by_id = {event_id: event for event in events if (event_id := _id_of(event)) is not None}
    if len(by_id) != len(wanted) or (unique_events and len(events) != len(wanted)):
        return False
    try:
        return _fit(by_id, wanted) and _are_apart(events)
    except RecursionError:  # nested as deep as can just be decoded
        return False


def listed_events(text: str) -> list[Any]:
    """What the first list with an object in it holds; nothing where that is no JSON."""
    try:
        found = json.loads(first_list(text) or "[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def first_list(text: str) -> str | None:
    """The first `[…]` that has a `{…}` in it, and no square bracket but inside of braces.

    Each mark is looked at once, from the last to the first: for what comes after it, where the list ends that it would
    belong to, and whether that has an object.
    """
    marks = array("Q", (mark.start() for mark in _MARK.finditer(text)))
    end: list[int | None] = [None] * (len(marks) + 1)
    has_object = bytearray(len(marks) + 1)
    brace: int | None = None
    for place in range(len(marks) - 1, -1, -1):
        mark = text[marks[place]]
        if mark == "]":
            end[place] = place
        if mark in "[]":
            continue
        is_object = mark == "{" and brace is not None
        following = brace + 1 if is_object and brace is not None else place + 1
        brace = place if mark == "}" else brace
        end[place] = end[following]
        has_object[place] = is_object or has_object[following]
    for place, start in enumerate(marks):
        last = end[place + 1]
        if text[start] == "[" and last is not None and has_object[place + 1]:
            return text[start : marks[last] + 1]
    return None


def _id_of(event: Any) -> str | None:
    return str(event["event_id"]) if isinstance(event, dict) and "event_id" in event else None


def _fit(events: Mapping[str, Any], wanted: Mapping[str, Wanted]) -> bool:
    return all(event_id in events and _fits(events[event_id], each) for event_id, each in wanted.items())


def _fits(event: Any, wanted: Wanted) -> bool:
    start = _start_of(event)
    if start is None or event.get("duration") != wanted.duration:
        return False
    return wanted.window.has_room_for(start, wanted.duration)


def _are_apart(events: Sequence[Any]) -> bool:
    """Whether no two events overlap; one that is listed twice, word for word, is one."""
    spans = {json.dumps(event, sort_keys=True): _span_of(event) for event in events}
    busy_until = float("-inf")
    for span in sorted(spans.values(), key=lambda span: span or (0.0, 0.0)):
        if span is None or span[0] < busy_until:
            return False
        busy_until = max(busy_until, span[1])
    return True


def _span_of(event: Any) -> tuple[float, float] | None:
    start, duration = _start_of(event), event.get("duration") if isinstance(event, dict) else None
    if start is None or isinstance(duration, bool) or not isinstance(duration, int | float):
        return None
    return start, start + duration


def _start_of(event: Any) -> int | None:
    try:
        return minutes_of(event.get("start_time"))
    except (TimeError, AttributeError):
        return None
