"""A process that matches patterns for another one. Run as a script: only the standard library's smallest parts load.

A job is a JSON line `{"do", "pattern", "texts", "ignore_case", "seconds"}` on stdin, its answer a JSON line on stdout.
A job that needs more CPU seconds than it may use ends the process, even when nobody is left to end it.
"""

import json
import re
import signal
import sys
from typing import Any

SHORT = 1_000
"""Characters of a pattern that may stay in the memory of `re`, which keeps hundreds."""


def answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        pattern = re.compile(job["pattern"], _flags(job))
    except (re.error, OverflowError, RecursionError) as error:
        return {"invalid": str(error)}
    texts = job["texts"]
    if job["do"] == "groups":
        return {"found": [pattern.findall(text) for text in texts]}
    if job["do"] == "matches":
        return {"found": [[match.group(0) for match in pattern.finditer(text)] for text in texts]}
    if job["do"] == "last":
        return {"found": [_last(pattern, text) for text in texts]}
    return {"found": [pattern.search(text) is not None for text in texts]}


def _flags(job: dict[str, Any]) -> int:
    lines = re.MULTILINE | re.DOTALL if job["do"] == "last" else 0
    return lines | (re.IGNORECASE if job["ignore_case"] else 0)


def _last(pattern: re.Pattern[str], text: str) -> list[Any] | None:
    last = None
    for match in pattern.finditer(text):
        last = match
    return None if last is None else [last.group(0), *last.groups()]


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        signal.setitimer(signal.ITIMER_VIRTUAL, job["seconds"])
        found = answer(job)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        if len(job["pattern"]) > SHORT:
            re.purge()


if __name__ == "__main__":
    main()
