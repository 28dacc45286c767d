"""Writes conversations of our own about a calendar: `python generate_data.py --split train --limit 1000`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from nemo_gym.data_preparation import run_preparation, write_rows
from resources_servers.calendar.events import is_right, wanted_events
from resources_servers.calendar.planning import answer, planned
from resources_servers.calendar.times import time_of

DATA = Path(__file__).parent / "data"
Style = Literal["calendar", "calendar_v2"]
SEEDS = {"train": 1, "validation": 2, "example": 3}
ROWS = {"train": 1000, "validation": 100, "example": 5}
FIRST, LAST = 10 * 60, 16 * 60

INSTRUCTIONS = (
    "You keep the user's calendar for one day. Rules:\n"
    "1. Whenever the calendar changes, print all of it as a JSON list, sorted by time, and no other list. Each entry "
    'has "event_id" (an integer: 0 for the event that was mentioned first, then 1, and so on), "event_name", '
    '"start_time" (such as "10am" or "1:30pm") and "duration" (an integer, in minutes).\n'
    f"2. Events lie between {time_of(FIRST)} and {time_of(LAST)} and never overlap.\n"
    "3. What the user says about an event holds until the user says otherwise. Move other events if you have to."
)
NAMES = (
    "Yoga class", "Call with the bank", "Team meeting", "Dentist", "Lunch with Ana", "Piano practice", "Bike repair",
    "Budget review", "Walk with the dog", "Interview", "Book club", "Grocery run", "Project update", "Haircut",
    "Parents' evening", "Spanish lesson", "Watering the plants", "Tax papers", "Swimming", "Photo session",
)  # fmt: skip
DURATIONS = (20, 30, 30, 45, 45, 60)
GREETINGS = ("Good morning!", "Hi there.", "Hello! Let's plan my day.", "Hey, I need a hand with tomorrow.")
SMALL_TALK = ("Thanks, that looks good.", "By the way, I slept badly.", "You are quick!", "It will be a long day.")
REPLY = "Gladly. Tell me if there is anything to add or to change."


@dataclass(frozen=True)
class Step:
    """What the user says at once, and what it changes about an event; nothing for words that change nothing."""

    words: str
    event: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


def make_row(rng: random.Random, style: Style = "calendar") -> dict[str, Any]:
    """A conversation that ends with the user, and the calendar that has to come next.

    `calendar_v2` has more events, changes of mind, and words that change nothing.
    """
    while True:
        row = _told(_steps(rng, style), rng.choice(GREETINGS))
        if row is not None:
            return row


def rows(split: str, style: Style = "calendar") -> Iterator[dict[str, Any]]:
    """The rows of a split, the same ones each time, without end."""
    rng = random.Random(f"{style} {SEEDS[split]}")
    return (make_row(rng, style) for _ in count())


def _told(steps: list[Step], greeting: str) -> dict[str, Any] | None:
    """The row of a conversation; None if at some point the events can't all be placed, or if the calendar before the
    last words would still be right after them."""
    messages = [{"role": "system", "content": INSTRUCTIONS}]
    state: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    reply = before = now = ""
    for step in steps:
        messages += [{"role": "assistant", "content": reply}] if reply else []
        messages.append({"role": "user", "content": step.words if reply else f"{greeting} {step.words}"})
        reply = REPLY
        if step.event is not None:
            changes = dict(step.changes)
            names.setdefault(str(step.event), changes.pop("name", ""))
            state.setdefault(str(step.event), _unnamed(step.event)).update(changes)
            if planned(wanted_events(state)) is None:
                return None
            before, now = now, answer(state, names)
            reply = now
    if is_right(before, wanted_events(state)):
        return None
    return {"responses_create_params": {"input": messages}, "exp_cal_state": state}


def _unnamed(event: int) -> dict[str, Any]:
    times = {"min_time": f"{FIRST // 60:02}:00", "max_time": f"{LAST // 60:02}:00"}
    return {"event_id": event, "duration": 0, "constraint": None, **times}


def _steps(rng: random.Random, style: Style) -> list[Step]:
    """Events, first; then what was forgotten about them, and changes of mind. The last step changes something."""
    is_second = style == "calendar_v2"
    added: list[Step] = []
    later: list[Step] = []
    for number, (name, duration, start) in enumerate(_day(rng, rng.randint(5, 7) if is_second else rng.randint(3, 5))):
        constraint = _constraint(rng, start, duration)
        at_first = rng.choice(DURATIONS) if is_second and rng.random() < 0.3 else duration
        is_late = constraint is not None and rng.random() < 0.4
        when = "" if constraint is None or is_late else f" It has to be {constraint}."
        known = {"name": name, "duration": at_first, "constraint": None if is_late else constraint}
        added.append(Step(f"Please add {name}, {at_first} minutes.{when}", number, known))
        if is_late:
            later.append(Step(f"I forgot: {name} has to be {constraint}.", number, {"constraint": constraint}))
        if at_first != duration:
            words = f"{name} will take {duration} minutes, not {at_first}."
            later.append(Step(words, number, {"duration": duration}))
    rng.shuffle(later)
    steps = [*added, *later]
    for talk in rng.sample(SMALL_TALK, 2) if is_second else ():
        steps.insert(rng.randint(1, len(steps) - 1), Step(talk))
    return steps


def _day(rng: random.Random, events: int) -> list[tuple[str, int, int]]:
    """Names, minutes and starts of events that have room beside each other, in no order."""
    durations = [rng.choice(DURATIONS) for _ in range(events)]
    while sum(durations) > LAST - FIRST:
        durations[durations.index(max(durations))] = min(DURATIONS)
    time, free = FIRST, LAST - FIRST - sum(durations)
    day = []
    for name, duration in zip(rng.sample(NAMES, events), durations, strict=True):
        gap = rng.randint(0, free // 15 // 2) * 15
        time, free = time + gap, free - gap
        day.append((name, duration, time))
        time += duration
    rng.shuffle(day)
    return day


def _constraint(rng: random.Random, start: int, duration: int) -> str | None:
    """Words that are true of an event, or none."""
    end = start + duration
    first, last = (max(FIRST, start - 15 * rng.randint(0, 3)), min(LAST, end + 15 * rng.randint(0, 3)))
    kinds = [
        None,
        f"at {time_of(start)}",
        f"before {time_of(last)}",
        f"after {time_of(first)}",
        f"between {time_of(first)} and {time_of(last)}",
    ]
    return rng.choice(kinds)


def write(
    split: str = "train", output: Path | None = None, limit: int | None = None, style: Style = "calendar"
) -> Path:
    """Write the conversations of a split, and return the file."""
    prefix = "" if style == "calendar" else f"{style}_"
    path = output or DATA / f"{prefix}{split}.jsonl"
    write_rows(path, rows(split, style), limit=limit or ROWS[split])
    return path


if __name__ == "__main__":
    run_preparation(write, description="Write conversations about a calendar.", splits=("train", "validation"))
