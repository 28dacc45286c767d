"""Moving records whose judge answered unusably to the failures file, so that resume runs them again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from nemo_gym.config.keys import ATTEMPT_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollouts.deliverables import is_deliverable
from nemo_gym.rollouts.keys import (
    DELIVERABLES_DIR_KEY,
    INVALID_JUDGE_RESPONSE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_MIGRATED_INVALID_JUDGE_KEY,
    NG_TERMINAL_KEY,
    REUSE_CACHED_DELIVERABLE_KEY,
    STAGE_INDEX_KEY,
)
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.rows import Row, objects

_IDENTITY = (STAGE_INDEX_KEY, TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, ATTEMPT_INDEX_KEY_NAME)


def migrate_invalid_judge_main_rows(output_fpath: Path) -> int:
    """Move records with a truthy `invalid_judge_response` to the failures file; returns how many.

    The failures file is on disk before the main file is replaced, so a crash in between loses nothing, and a record
    that was moved already isn't added twice.
    """
    results = ResultSet(output_fpath)
    if not output_fpath.exists() or not any(map(_is_invalid, objects(output_fpath))):
        return 0
    moved = {_identity(row) for row in objects(results.failures) if row.get(NG_MIGRATED_INVALID_JUDGE_KEY)}
    temporary = output_fpath.with_name(f".{output_fpath.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with temporary.open("wb") as kept, results.failures.open("ab") as failures:
            for row in objects(output_fpath):
                if not _is_invalid(row):
                    kept.write(orjson.dumps(row) + b"\n")
                    continue
                count += 1
                if _identity(row) not in moved:
                    failures.write(orjson.dumps(_as_failure(row)) + b"\n")
            for file in (failures, kept):
                file.flush()
                os.fsync(file.fileno())
        temporary.chmod(output_fpath.stat().st_mode & 0o7777)
        temporary.replace(output_fpath)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _is_invalid(row: Mapping[str, Any]) -> bool:
    return bool(row.get(INVALID_JUDGE_RESPONSE_KEY))


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in _IDENTITY)


def _as_failure(row: Row) -> Row:
    failure = {key: value for key, value in row.items() if key != NG_TERMINAL_KEY}
    failure[NG_FAILURE_CLASS_KEY] = row.get(NG_FAILURE_CLASS_KEY) or "judge_invalid"
    failure[NG_MIGRATED_INVALID_JUDGE_KEY] = True
    failure[REUSE_CACHED_DELIVERABLE_KEY] = _has_deliverable(row.get(DELIVERABLES_DIR_KEY))
    return failure


def _has_deliverable(folder: object) -> bool:
    return isinstance(folder, str) and Path(folder).is_dir() and any(map(is_deliverable, Path(folder).iterdir()))
