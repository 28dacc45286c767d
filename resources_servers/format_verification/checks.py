"""The checks a row's `verifier` object can ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nemo_gym.verifiers.patterns import PatternError, find_matches, matching
from nemo_gym.verifiers.verdicts import RowError
from resources_servers.format_verification.task_data import LineVerifier, MarkerVerifier, Verifier

Details = dict[str, Any]

_VERIFIERS: TypeAdapter[LineVerifier | MarkerVerifier] = TypeAdapter(Verifier)


async def check_format(verifier: Mapping[str, Any], text: str) -> Details:
    """What was found in `text`, with `passed`.

    Raises RowError for a verifier that can't be used, and PatternTimeoutError.
    """
    wanted = checked(verifier)
    check = check_lines(wanted, text) if isinstance(wanted, LineVerifier) else check_markers(wanted, text)
    try:
        return await check
    except PatternError as error:
        raise RowError(f"verifier: {error}") from error


def checked(verifier: Mapping[str, Any]) -> LineVerifier | MarkerVerifier:
    """The verifier of a row. Raises RowError, naming what is wrong with it."""
    try:
        return _VERIFIERS.validate_python(verifier)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = ".".join(map(str, ("verifier", *wrong["loc"])))
        raise RowError(f"{place}: {wrong['msg']}") from error


async def check_lines(verifier: LineVerifier, text: str) -> Details:
    """At least `verify_min_matches` lines in which one of `verify_regex` is found; a line counts once."""
    minimum = verifier.verify_min_matches
    lines = await count_lines(verifier.verify_regex, text.split("\n"))
    return {"matching_lines": lines, "min_matches": minimum, "passed": lines >= minimum}


async def check_markers(verifier: MarkerVerifier, text: str) -> Details:
    """Every marker of `expected_markers` is there, and nothing that `patterns` find but these."""
    expected = verifier.expected_markers
    known = set(expected)
    found = [match for pattern in verifier.patterns for match in await find_matches(pattern, text)]
    missing = [marker for marker in expected if marker not in text]
    spurious = [match for match in found if match not in known]
    return {"expected": expected, "missing": missing, "spurious": spurious, "passed": not missing and not spurious}


async def count_lines(patterns: Sequence[str], lines: Sequence[str]) -> int:
    """How many of `lines` match one of `patterns` or several."""
    left, count = list(lines), 0
    for pattern in patterns:
        found = await matching(pattern, left)
        count += sum(found)
        left = [line for line, matches in zip(left, found, strict=True) if not matches]
    return count
