"""Finding times for events: what a perfect answer is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping

from resources_servers.calendar.events import Wanted, wanted_events
from resources_servers.calendar.times import time_of


def planned(wanted: Mapping[str, Wanted]) -> dict[str, int] | None:
    """When each event may start so that all are apart, in minutes after midnight; None where there is no way.

    Events follow each other in some order, each as early as it can be, so that trying the orders finds a way if there
    is one.
    """
    return _after(0, wanted, {})


def _after(time: float, left: Mapping[str, Wanted], placed: Mapping[str, int]) -> dict[str, int] | None:
    if not left:
        return dict(placed)
    starts = {event_id: _earliest(time, event) for event_id, event in left.items()}
    if None in starts.values():
        return None
    for event_id, start in sorted(starts.items(), key=lambda item: item[1] or 0):
        assert start is not None
        others = {other: event for other, event in left.items() if other != event_id}
        found = _after(start + left[event_id].duration, others, {**placed, event_id: start})
        if found is not None:
            return found
    return None


def _earliest(time: float, event: Wanted) -> int | None:
    """When an event may start at the earliest, not before `time`; None if it can't any more."""
    window = event.window
    start = int(max(time, window.start_from)) if window.start_at is None else window.start_at
    return start if start >= time and window.has_room_for(start, event.duration) else None


def answer(state: Mapping[str, dict[str, object] | None], names: Mapping[str, str] | None = None) -> str:
    """A right calendar for `exp_cal_state`, as an answer prints it. ValueError where there is none."""
    wanted = wanted_events(state)
    starts = planned(wanted)
    if starts is None:
        raise ValueError("these events can't all be placed")
    listed = [
        {
            "event_id": int(event_id) if event_id.isdigit() else event_id,
            "event_name": (names or {}).get(event_id, f"Event {event_id}"),
            "start_time": time_of(start),
            "duration": wanted[event_id].duration,
        }
        for event_id, start in sorted(starts.items(), key=lambda item: item[1])
    ]
    return json.dumps(listed)
