"""Lines in the middle of a result file that nobody can read any more: they are kept, apart from the records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from nemo_gym.config.notices import warn
from nemo_gym.rollouts.errors import OutputError
from nemo_gym.rollouts.outputs import ResultSet

_LISTED = 5


def set_damaged_aside(results: ResultSet) -> bool:
    """Move the lines of the records' files that are no JSON objects to `<file>.damaged`, saying so; whether any were.

    They are on disk there before they are gone here. Raises OutputError when that can't be written.
    """
    found = [path for path in (results.output, results.failures) if path.exists() and _set_aside(path)]
    return bool(found)


def _set_aside(path: Path) -> bool:
    damaged = [number for number, line in _lines(path) if not _is_record(line)]
    if not damaged:
        return False
    kept, aside = path.with_name(f".{path.name}.{os.getpid()}.tmp"), ResultSet.damaged_lines_of(path)
    try:
        with kept.open("wb") as records, aside.open("ab") as others:
            for _, line in _lines(path):
                (records if _is_record(line) else others).write(line)
            for file in (others, records):
                file.flush()
                os.fsync(file.fileno())
        kept.chmod(path.stat().st_mode & 0o7777)
        kept.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} has lines that can't be read, and {aside} can't be written to keep them ({error.strerror}): make "
            "room, then run the same command again."
        ) from error
    finally:
        kept.unlink(missing_ok=True)
    numbers = ", ".join(map(str, damaged[:_LISTED])) + (", …" if len(damaged) > _LISTED else "")
    what = "Line" if len(damaged) == 1 else "Lines"
    warn(f"{what} {numbers} of {path} can't be read: kept in {aside}; what they recorded counts as not measured.")
    return True


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as lines:
        yield from enumerate(lines, start=1)


def _is_record(line: bytes) -> bool:
    """Blank lines are nothing that was lost."""
    if line.isspace():
        return True
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False
