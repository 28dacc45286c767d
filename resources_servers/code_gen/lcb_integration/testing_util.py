"""Comparing answers, and running functions, under the names of LiveCodeBench."""

import asyncio
import io
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from resources_servers.code_gen.checking import check, code_runner
from resources_servers.code_gen.comparison import (
    convert_line_to_decimals,
    decimal_lines_match,
    is_case_insensitive_verdict,
    values_are_close,
)
from resources_servers.code_gen.prelude import import_string
from resources_servers.code_gen.unit_tests import UnitTests

__all__ = [
    "Capturing",
    "MockStdinWithBuffer",
    "convert_line_to_decimals",
    "decimal_lines_match",
    "grade_call_based",
    "import_string",
    "is_case_insensitive_verdict",
    "values_are_close",
]


class MockStdinWithBuffer(io.TextIOWrapper):
    """A stdin that holds a text, with the `buffer` of a real one."""

    def __init__(self, inputs: str) -> None:
        super().__init__(io.BytesIO(inputs.encode("utf-8", "surrogatepass")), encoding="utf-8", errors="replace")
        self.inputs = inputs


class Capturing(list[str]):
    """Within its block what is printed goes into this list, as one text; bytes that are no UTF-8 are replaced."""

    def __enter__(self) -> Self:
        self._before = sys.stdout
        self._bytes = io.BytesIO()
        self._stream = io.TextIOWrapper(self._bytes, encoding="utf-8", errors="replace", write_through=True)
        sys.stdout = self._stream
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout = self._before
        self._stream.flush()
        self.append(self._bytes.getvalue().decode("utf-8", "replace"))


def grade_call_based(
    code: str, all_inputs: Sequence[str], all_outputs: Sequence[str], fn_name: str, timeout: float
) -> tuple[list[bool | int], dict[str, Any]]:
    """Result codes and metadata of a function. Raises RowError, CodeRunnerError."""
    tests = UnitTests.of({"inputs": list(all_inputs), "outputs": list(all_outputs), "fn_name": fn_name})
    verdict = asyncio.run(check(code_runner(1), tests, code, timeout))
    return verdict.result, verdict.metadata
