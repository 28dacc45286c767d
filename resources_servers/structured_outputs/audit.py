"""What the audit of this environment knows."""

import json
from typing import Any

from nemo_gym.audit import Audit, Replies, Row, call

DOCUMENTS = {
    "city": '{"city": "Berlin", "millions": 3.7, "capital": true}',
    "menu": "menu:\n- {day: Monday, dish: soup, price: 4.5}\n",
    "flight": ("<flight><number>QX 210</number><gate>14</gate><time>9:05</time><delayed>false</delayed></flight>"),
    "robot": '[robot]\nname = "Rolf"\nwheels = 4\nspeed = 1.5\n',
    "day": "day,millimetres\n1,3.5\n2,\n3,12\n",
    "title": '{"title": "Tales from the Harbour", "year": 1987, "lent": true}',
    "lines": '{"lines": [{"number": 12, "to": "station", "every_minutes": 10}]}',
    "rooms": '{"rooms": [{"name": "kitchen", "degrees": 21.5}]}',
    "name": '{"name": "Pip", "colours": ["green"], "talks": true}',
    "opens": '{"opens": 9, "closes": 18, "closed_on": ["Sun"]}',
    "eggs": '{"eggs": 3, "flour_grams": 200, "sugar": false}',
    "guests": "guests:\n- {name: Anna, age: 31}\n",
    "package": (
        "<package><kilograms>2.4</kilograms><sender>Kiel</sender><receiver>Ulm</receiver><insured>true</insured></package>"
    ),
    "walk": "<walk><name>Lake</name><stops><stop>Jetty</stop><stop>Mill</stop></stops></walk>",
    "server": "server: {host: 10.0.0.7, port: 8080, logging: false}\n",
    "colour": '{"colour": "blue", "metres": 2}',
}
"""Answers to the example rows, by the first property that their schema has."""

CALLS: dict[str, dict[str, Any]] = {
    "note_meeting": {"title": "budget", "hour": 14, "people": ["Mia", "Omar"]},
    "file_bill": {"number": "A-17", "total": 349.9},
    "plan_trip": {"trip": {"start": "Graz", "end": "Linz", "days": 3}},
    "remember": {"what": "the spare key", "where": "under the third pot"},
}


def reference(row: Row) -> Replies:
    if row.get("response_mode") == "tool_call":
        name = row["tool_name"]
        return call(name, **CALLS[name]) if name in CALLS else None
    schema = json.loads(row["schema_str"])
    properties = schema.get("properties") or schema["items"]["properties"]
    return DOCUMENTS.get(next(iter(properties)))


def the_schema(row: Row) -> str:
    return str(row["schema_str"])


AUDIT = Audit(reference=reference, tricks={"the schema itself": the_schema, "an empty object": lambda row: "{}"})
