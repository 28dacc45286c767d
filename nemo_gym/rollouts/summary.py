"""The last lines of a run, and the same as data beside its results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from nemo_gym.config.notices import warn
from nemo_gym.rollouts.coverage import Coverage, Retried
from nemo_gym.rollouts.outputs import ResultSet


class Summary:
    """Tells the coverage of a result set once, however its run ends, and writes it to `<stem>_coverage.json`."""

    def __init__(self, results: ResultSet, retried: Retried, resumed_anyway: Sequence[str] = ()) -> None:
        self._results = results
        self._retried = retried
        self._resumed_anyway = resumed_anyway
        self._is_told = False

    def tell(self, coverage: Coverage, **more: Any) -> None:
        """Print the line and write the file; only the first call does. `more` goes into the file."""
        if self._is_told:
            return
        self._is_told = True
        if (line := self._retried.line()) is not None:
            print(line)
        print(coverage.line())
        self._write(coverage.as_data() | self._retried.as_data() | more | {"resumed_anyway": [*self._resumed_anyway]})

    def _write(self, data: dict[str, Any]) -> None:
        path = self._results.coverage
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")
            temporary.replace(path)
        except OSError as error:
            warn(f"{path} can't be written ({error.strerror}).")
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
