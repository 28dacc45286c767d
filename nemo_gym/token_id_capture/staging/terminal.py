"""Which staged call a rollout ended with, told from the rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nemo_gym.token_id_capture.staging.records import CallRecord

SelectionReason: TypeAlias = Literal[
    "selected", "no_records", "duplicate_call_id", "orphaned_row", "no_root", "ambiguous_terminal"
]


@dataclass(frozen=True)
class TerminalSelection:
    """The selected call, or why none is."""

    model_call_id: str | None
    reason: SelectionReason


def select_terminal_call(records: Sequence[CallRecord]) -> TerminalSelection:
    """The only call that no other continues, if every row leads back to a root."""
    if not records:
        return TerminalSelection(None, "no_records")
    ids = Counter(record.model_call_id for record in records)
    if max(ids.values()) > 1:
        return TerminalSelection(None, "duplicate_call_id")
    parents = {record.model_call_id: record.parent_call_id for record in records}
    if any(parent is not None and parent not in parents for parent in parents.values()):
        return TerminalSelection(None, "orphaned_row")
    if None not in parents.values():
        return TerminalSelection(None, "no_root")
    leaves = set(parents) - set(parents.values())
    if len(leaves) != 1 or len(_path_from_root(leaves, parents)) != len(parents):
        return TerminalSelection(None, "ambiguous_terminal")
    return TerminalSelection(next(iter(leaves)), "selected")


def _path_from_root(leaves: set[str], parents: dict[str, str | None]) -> list[str]:
    path: list[str] = []
    current: str | None = next(iter(leaves))
    while current is not None and current not in path:
        path.append(current)
        current = parents[current]
    return path
