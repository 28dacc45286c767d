from __future__ import annotations

import asyncio
import re
import signal
from typing import Any

import pytest

from nemo_gym.verifiers import patterns
from nemo_gym.verifiers.patterns import (
    PatternError,
    PatternTimeoutError,
    find_groups,
    find_matches,
    last_match,
    matching,
)

CATASTROPHIC = r"(a+)+$"
VICTIM = "a" * 64 + "b"

TEXTS = ["", "Answer: B\nanswer: c", "a1b22c333", "naïve Straße ①", "x\r\ny\u2028z", "\ud800 lone", "aaa"]


@pytest.mark.parametrize(
    "pattern", [r"\w+", r"answer:\s*(\w)", r"(\w)(\d+)", r"a*", r"^.", r"(?P<n>\d)+", r"ß|①", "", r"(?i)A"]
)
@pytest.mark.parametrize("text", TEXTS)
async def test_finds_what_re_finds(pattern: str, text: str) -> None:
    found: list[Any] = [list(f) if isinstance(f, tuple) else f for f in re.findall(pattern, text)]
    assert await find_groups(pattern, text) == found
    assert await find_matches(pattern, text) == [match.group(0) for match in re.finditer(pattern, text)]
    assert await matching(pattern, [text, "other"]) == [bool(re.search(pattern, each)) for each in (text, "other")]


async def test_case_is_ignored_on_request() -> None:
    assert await find_groups("answer: (.)", "ANSWER: B") == []
    assert await find_groups("answer: (.)", "ANSWER: B", ignore_case=True) == ["B"]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a{2,1}", "(?P<n>.)(?P<n>.)", "*", "a{99999999999}"])
async def test_what_is_no_pattern_says_so(pattern: str) -> None:
    with pytest.raises(PatternError, match="is no regular expression"):
        await find_matches(pattern, "text")
    with pytest.raises(re.error):
        await matching(pattern, ["text"])


async def test_a_pattern_is_only_so_long() -> None:
    assert await find_matches("a" * 2_000, "a" * 2_500) == ["a" * 2_000]
    with pytest.raises(PatternError, match=r"'a{200}…' is too long: a pattern has at most 100,000 characters"):
        await matching("a" * 100_001, ["a"])


async def test_a_catastrophic_pattern_is_given_up_and_the_next_one_answered() -> None:
    with pytest.raises(PatternTimeoutError, match=r"'\(a\+\)\+\$' took more than 0\.05 s of CPU"):
        await find_groups(CATASTROPHIC, VICTIM, seconds=0.05)
    assert await find_groups("b", VICTIM) == ["b"]


async def test_the_loop_goes_on_while_a_pattern_runs() -> None:
    running = asyncio.create_task(find_groups(CATASTROPHIC, VICTIM, seconds=0.3))
    ticks = 0
    while not running.done():
        await asyncio.sleep(0)
        ticks += 1
    with pytest.raises(PatternTimeoutError):
        await running
    assert ticks > 20


async def test_many_at_once_get_their_own_answers() -> None:
    texts = [f"item {number}" for number in range(60)]
    assert await asyncio.gather(*(find_groups(r"\d+", text) for text in texts)) == [[str(n)] for n in range(60)]


async def test_a_worker_ended_by_others_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = patterns._Worker()
    process = worker._running()
    process.send_signal(signal.SIGKILL)
    process.wait()
    monkeypatch.setattr(process, "poll", lambda: None)
    job = {"do": "search", "pattern": "a", "texts": ["a"], "ignore_case": False, "seconds": 1}
    with pytest.raises(RuntimeError, match="ended from outside"):
        worker.ask(job)
    assert worker.ask(job) == {"found": [True]}
    worker.end()


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"(\w)=(\d)?", "a=1 b=", ["b=", "b", None]),
        (r"^x.y$", "w\nx\ny\nz", ["x\ny"]),
        (r"(?i)ANSWER", "answer", ["answer"]),
        ("no", "yes", None),
    ],
)
async def test_the_last_match_with_its_groups(pattern: str, text: str, found: list[str | None] | None) -> None:
    assert await last_match(pattern, text) == found
