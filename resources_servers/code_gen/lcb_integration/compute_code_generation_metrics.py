"""Checking one program, for callers without an event loop."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from resources_servers.code_gen.checking import check, code_runner
from resources_servers.code_gen.unit_tests import UnitTests


def check_correctness(
    sample: Mapping[str, Any], generation: str, timeout: float, debug: bool = False
) -> tuple[list[bool | int], dict[str, Any]]:
    """Result codes and metadata of a program; `sample["input_output"]` is the JSON of its tests.

    Raises RowError, CodeRunnerError.
    """
    tests = UnitTests.of(json.loads(sample["input_output"]))
    verdict = asyncio.run(check(code_runner(1), tests, generation, timeout))
    if debug:
        print(verdict)
    return verdict.result, verdict.metadata
