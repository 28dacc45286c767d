"""The published conversations as rows of this environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.data_preparation import PreparationError, fetch_rows


def fetch(repository: str, split: str, path: Path, limit: int | None = None) -> Path:
    """Fetch one split of a data set, write its rows and return the file. PreparationError names a row that is none."""
    return fetch_rows(repository, as_row, path, split=split, limit=limit)


def as_row(source: Mapping[str, Any], number: int = 1) -> dict[str, Any]:
    """A published conversation, without the events and fields that are null because other rows have them."""
    request, state = (_data(source.get(key)) for key in ("responses_create_params", "exp_cal_state"))
    if not isinstance(request, dict) or not request.get("input"):
        raise PreparationError(f"Row {number} has no prompt: it needs responses_create_params.input.")
    if not isinstance(state, dict):
        raise PreparationError(f"Row {number} has no exp_cal_state that lists events by id: {str(state)[:80]}")
    return {
        "responses_create_params": {key: value for key, value in request.items() if value is not None},
        "exp_cal_state": {event_id: event for event_id, event in state.items() if event is not None},
    }


def _data(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
