"""The checks a row's `verifier` object can ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nemo_gym.verifiers.patterns import find_matches, matching

Verifier = Mapping[str, Any]
Details = dict[str, Any]


async def check_format(verifier: Verifier, text: str) -> Details:
    """What was found in `text`, with `passed`.

    Raises NotImplementedError for an unknown type of verifier, PatternError and PatternTimeoutError for its patterns.
    """
    check = _CHECKS.get(verifier.get("type"))
    if check is None:
        known = ", ".join(f"`{name}`" for name in _CHECKS if name)
        raise NotImplementedError(f"there is no verifier type {verifier.get('type')!r}; there are {known}")
    return await check(verifier, text)


async def check_lines(verifier: Verifier, text: str) -> Details:
    """At least `verify_min_matches` lines in which one of `verify_regex` is found; a line counts once."""
    minimum: int = verifier.get("verify_min_matches", 1)
    lines = await count_lines(verifier.get("verify_regex", []), text.split("\n"))
    return {"matching_lines": lines, "min_matches": minimum, "passed": lines >= minimum}


async def check_markers(verifier: Verifier, text: str) -> Details:
    """Every marker of `expected_markers` is there, and nothing that `patterns` find but these."""
    expected: list[str] = verifier.get("expected_markers", [])
    found = [match for pattern in verifier.get("patterns", []) for match in await find_matches(pattern, text)]
    missing = [marker for marker in expected if marker not in text]
    spurious = [match for match in found if match not in expected]
    return {"expected": expected, "missing": missing, "spurious": spurious, "passed": not missing and not spurious}


async def count_lines(patterns: Sequence[str], lines: Sequence[str]) -> int:
    """How many of `lines` match one of `patterns` or several."""
    left, count = list(lines), 0
    for pattern in patterns:
        found = await matching(pattern, left)
        count += sum(found)
        left = [line for line, matches in zip(left, found, strict=True) if not matches]
    return count


_CHECKS: dict[Any, Callable[[Verifier, str], Awaitable[Details]]] = {
    "regex": check_lines,
    "inline_prose": check_lines,
    "string_match": check_markers,
}
