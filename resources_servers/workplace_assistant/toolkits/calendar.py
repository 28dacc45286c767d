"""The calendar."""

import re
from typing import Any

from resources_servers.workplace_assistant.toolkits.toolkit import (
    PAGE_SIZE,
    Toolkit,
    field_of,
    having,
    is_address,
    is_timestamp,
    padded,
    page_of,
    tool,
)

_ID = "The number of the event, eight digits"
_FIELDS = ("event_name", "participant_email", "event_start", "duration")
_NOT_FOUND = "Event not found."


class Calendar(Toolkit):
    prefix = "calendar"

    @tool(
        "Get one field of an event.",
        is_reading=True,
        required="event_id field",
        event_id=_ID,
        field="event_id, event_name, participant_email, event_start or duration",
    )
    def get_event_information_by_id(self, event_id: str | None = None, field: str | None = None) -> Any:
        if not event_id:
            return "Event ID not provided."
        if not field:
            return "Field not provided."
        if not re.fullmatch(r"\d{8}", event_id):
            return "Invalid event ID: it must have exactly 8 digits."
        return field_of(self.office.calendar.find("event_id", event_id), field, "Event")

    @tool(
        "Search events by name or participant, latest first.",
        is_reading=True,
        query="What the name or the participant's address must contain",
        time_min="The earliest start, as YYYY-MM-DD HH:MM:SS",
        time_max="The latest start, as YYYY-MM-DD HH:MM:SS",
        page="Which page of results",
        page_size="Results per page",
    )
    async def search_events(
        self,
        query: str = "",
        time_min: str | None = None,
        time_max: str | None = None,
        page: int = 1,
        page_size: int = PAGE_SIZE,
    ) -> Any:
        found = [
            dict(row)
            for row in await having(query, self.office.calendar, "event_name", "participant_email")
            if (not time_min or row["event_start"] >= time_min) and (not time_max or row["event_start"] <= time_max)
        ]
        if not found:
            return "No events found."
        found.sort(key=lambda row: row["event_start"], reverse=True)
        return page_of(found, "events", page, page_size)

    @tool(
        "Create an event; its number is returned.",
        required="event_name participant_email event_start duration",
        event_name="What it is called",
        participant_email="Who is invited",
        event_start="When it starts, as YYYY-MM-DD HH:MM:SS",
        duration="How many minutes it takes",
    )
    def create_event(
        self,
        event_name: str | None = None,
        participant_email: str | None = None,
        event_start: str | None = None,
        duration: str | None = None,
    ) -> str:
        given = {
            "event_name": event_name,
            "participant_email": participant_email,
            "event_start": event_start,
            "duration": duration,
        }
        changes: dict[str, str] = {}
        for field, value in given.items():
            if not value:
                return f"{_worded(field)} not provided."
            if problem := _problem(field, str(value)):
                return problem
            changes[field] = _stored(field, str(value))
        event_id = padded(self.office.calendar.next_id("event_id"))
        self.office.calendar.append({"event_id": event_id, **changes}, relabel=False)
        return event_id

    @tool("Delete an event.", required="event_id", event_id=_ID)
    def delete_event(self, event_id: str | None = None) -> str:
        if not event_id:
            return "Event ID not provided."
        return "Event deleted successfully." if self.office.calendar.delete("event_id", event_id) else _NOT_FOUND

    @tool(
        "Change one field of an event.",
        required="event_id field new_value",
        event_id=_ID,
        field="event_name, participant_email, event_start or duration",
        new_value="What it is to be",
    )
    def update_event(self, event_id: str | None = None, field: str | None = None, new_value: str | None = None) -> str:
        if not event_id or not field or not new_value:
            return "Event ID, field, or new value not provided."
        if field not in _FIELDS:
            return f"Field {field} can't be changed: choose one of {', '.join(_FIELDS)}."
        if problem := _problem(field, str(new_value)):
            return problem
        changes = {field: _stored(field, str(new_value))}
        return (
            "Event updated successfully." if self.office.calendar.update("event_id", event_id, changes) else _NOT_FOUND
        )


def _problem(field: str, value: str) -> str | None:
    if field == "participant_email" and not is_address(value):
        return "Invalid participant email address."
    if field == "event_start" and not is_timestamp(value):
        return "Invalid event start: write it as YYYY-MM-DD HH:MM:SS."
    if field == "duration" and not (value.isdigit() and int(value) > 0):
        return "Invalid duration: it must be a positive number of minutes."
    return None


def _stored(field: str, value: str) -> str:
    return value.lower() if field == "participant_email" else value


def _worded(field: str) -> str:
    return field.replace("_", " ").capitalize()
