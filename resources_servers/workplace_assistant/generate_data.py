"""Writes the office's tables: `python generate_data.py`. The same seed gives the same files, byte for byte.

An office of our own making, in the shape of the WorkBench tables. To work on the published rows of that data set, put
its `data/processed` and `data/raw` files into `csv_data/` instead.
"""

from __future__ import annotations

import csv
import datetime
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "csv_data"
NOW = datetime.datetime(2023, 11, 30, 23, 59)
DOMAIN = "atlas.com"

_PEOPLE = (
    "aisha.okafor", "bruno.lindqvist", "carmen.ortega", "dmitri.volkov", "elena.rossi", "farid.haddad",
    "greta.nilsen", "hiro.tanaka", "ines.moreau", "jonas.weber", "kofi.mensah", "leila.santos", "marco.bianchi",
    "nadia.karim", "oscar.lund", "priya.nair", "quentin.dubois", "rosa.jimenez", "samir.patel", "tove.berg",
)  # fmt: skip
_TOPICS = (
    "quarterly budget", "onboarding plan", "release notes", "office move", "security review", "customer survey",
    "press kit", "travel policy", "holiday rota", "data migration", "pricing update", "design refresh",
    "partner contract", "incident report",
)  # fmt: skip
_MEETINGS = ("planning", "review", "kick-off", "retrospective", "interview", "demo", "workshop", "check-in")
_PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
_STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
_LISTS = ("Backlog", "In Progress", "In Review", "Completed")
_BOARDS = ("Back end", "Front end", "Design")
_SOURCES = ("direct", "referral", "search engine", "social media")
_VERBS = ("Fix", "Add", "Refactor", "Document", "Test", "Remove", "Improve", "Investigate")
_PARTS = (
    "login form", "payment page", "search index", "export job", "landing page", "audit log", "mobile menu",
    "report view",
)  # fmt: skip
_FIRST = (
    "Alma", "Boris", "Clara", "Dario", "Edith", "Felix", "Gina", "Henk", "Iris", "Jorge", "Kaya", "Lars",
    "Mona", "Nils", "Olga", "Pablo", "Rita", "Sven", "Tara", "Umar",
)  # fmt: skip
_LAST = (
    "Abel", "Brandt", "Costa", "Dahl", "Egger", "Fonseca", "Gruber", "Holm", "Ivers", "Jansen", "Kovacs",
    "Lopez", "Meyer", "Novak", "Otieno", "Park", "Quist",
)  # fmt: skip
_CLIENTS = ("example-mail.com", "post.example", "inbox.example")


def main() -> None:
    chance = random.Random(20231130)
    addresses = [f"{name}@{DOMAIN}" for name in _PEOPLE]
    raw = FOLDER / "raw" / "email_addresses.csv"
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.write_text("\n".join(addresses) + "\n", encoding="utf-8")
    _write("analytics_data", _visits(chance))
    _write("calendar_events", _events(chance, addresses))
    _write("customer_relationship_manager_data", _customers(chance, addresses))
    _write("emails", _emails(chance, addresses))
    _write("project_tasks", _tasks(chance, addresses))


def _write(name: str, rows: Iterable[dict[str, Any]]) -> None:
    path = FOLDER / "processed" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as sink:
        writer = csv.DictWriter(sink, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _day(chance: random.Random, first: int, last: int) -> datetime.date:
    """A day between `first` and `last` days from now."""
    return (NOW + datetime.timedelta(days=chance.randint(first, last))).date()


def _moment(chance: random.Random, first: int, last: int, minutes: Sequence[int]) -> str:
    hour, minute = chance.randint(9, 16), chance.choice(minutes)
    return f"{_day(chance, first, last)} {hour:02}:{minute:02}:00"


def _visits(chance: random.Random) -> list[dict[str, Any]]:
    visitors = [f"{chance.randrange(10_000):04}" for _ in range(700)]
    rows = [
        {
            "date_of_visit": str(_day(chance, -90, 0)),
            "visitor_id": chance.choice(visitors),
            "page_views": chance.randint(1, 20),
            "session_duration_seconds": chance.randint(1, 40),
            "traffic_source": chance.choice(_SOURCES),
            "user_engaged": chance.random() < 0.5,
        }
        for _ in range(1000)
    ]
    return sorted(rows, key=lambda row: str(row["date_of_visit"]))


def _events(chance: random.Random, addresses: Sequence[str]) -> list[dict[str, Any]]:
    rows = [
        {
            "event_name": f"{chance.choice(_TOPICS).capitalize()} {chance.choice(_MEETINGS)}",
            "participant_email": chance.choice(addresses),
            "event_start": _moment(chance, -60, 45, (0, 15, 30, 45)),
            "duration": chance.choice((30, 45, 60, 90)),
        }
        for _ in range(300)
    ]
    rows.sort(key=lambda row: str(row["event_start"]))
    return [{"event_id": f"{number:08}", **row} for number, row in enumerate(rows)]


def _customers(chance: random.Random, addresses: Sequence[str]) -> list[dict[str, Any]]:
    names = [f"{first} {last}" for first in _FIRST for last in _LAST]
    chance.shuffle(names)
    return [
        {
            "customer_id": f"{number:08}",
            "assigned_to_email": chance.choice(addresses),
            "customer_name": name,
            "customer_email": f"{name.lower().replace(' ', '.')}@{chance.choice(_CLIENTS)}",
            "customer_phone": f"{chance.randrange(200, 1000)}-555-{chance.randrange(10_000):04}",
            "last_contact_date": str(_day(chance, -80, 0)),
            "product_interest": chance.choice(_PRODUCTS),
            "status": chance.choice(_STATUSES),
            "follow_up_by": str(_day(chance, 1, 40)),
            "notes": chance.choice(("", f"Asked about the {chance.choice(_TOPICS)}.", "Prefers to be called.")),
        }
        for number, name in enumerate(names[:200])
    ]


def _emails(chance: random.Random, addresses: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for _ in range(500):
        topic, who = chance.choice(_TOPICS), chance.choice(addresses)
        name = who.split(".")[0].capitalize()
        rows.append(
            {
                "inbox/outbox": chance.choice(("inbox", "inbox", "outbox")),
                "sender/recipient": who,
                "subject": f"{chance.choice(('About the', 'Question on the', 'News of the', 'Draft of the'))} {topic}",
                "sent_datetime": _moment(chance, -60, -1, range(60)),
                "body": f"Hello, the {topic} needs a decision by {_day(chance, 1, 20):%A}. Could we talk? {name}",
            }
        )
    rows.sort(key=lambda row: row["sent_datetime"])
    return [{"email_id": f"{number:08}", **row} for number, row in enumerate(rows)]


def _tasks(chance: random.Random, addresses: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "task_id": f"{number:08}",
            "task_name": f"{chance.choice(_VERBS)} {chance.choice(_PARTS)}",
            "assigned_to_email": chance.choice(addresses),
            "list_name": chance.choice(_LISTS),
            "due_date": str(_day(chance, -20, 40)),
            "board": chance.choice(_BOARDS),
        }
        for number in range(300)
    ]


if __name__ == "__main__":
    main()
