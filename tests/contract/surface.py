"""The names that components of 0.7 import, as data: `surface.jsonl`, one name a line."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROWS_FILE = Path(__file__).with_name("surface.jsonl")


@dataclass(frozen=True)
class Row:
    """One importable name: what it is and, as far as it applies, its fields, parameters, members and methods."""

    module: str
    name: str
    kind: str
    facts: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def fields(self) -> dict[str, dict[str, Any]]:
        return self.facts.get("fields") or {}

    @property
    def public_methods(self) -> dict[str, dict[str, Any]]:
        methods: dict[str, dict[str, Any]] = self.facts.get("methods") or {}
        return {name: method for name, method in methods.items() if not name.startswith("_")}


def rows() -> list[Row]:
    lines = [json.loads(line) for line in ROWS_FILE.read_text(encoding="utf-8").splitlines()]
    return [Row(line["module"], line["name"], line["kind"], line) for line in lines]
