"""Hostile models against every resources server here: no output or tool call of theirs makes it fall over.

Each flavour answers a sample; `HOSTILE_OUTPUTS=all` has it answer everything, which takes minutes.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import textwrap
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nemo_gym.audit.subject import Subject, subjects
from nemo_gym.audit.tricks import offered
from nemo_gym.config.roots import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME
from nemo_gym.errors import GymError
from nemo_gym.onefile.component import cached_component
from nemo_gym.verifiers import patterns
from tests.security import environments
from tests.security.environments import Answer, Opened, missing_packages, opened, served_subjects
from tests.security.hostile_outputs import HOSTILE, Output, junk, misfit, shown, spoiled
from tests.security.test_fuzz import ODD, RAW, nested
from tests.spoiling import spoiled as spoiled_body

T = TypeVar("T")

EVERYTHING = os.environ.get("HOSTILE_OUTPUTS") == "all"
SPOILED, BODIES, TOOLS = 12, 25, 5
SERVED = served_subjects()
FIRST = set(dict(reversed(SERVED)).values())
"""One flavour of each component, which answers the most."""

UNDEMANDING = {"example_single_tool_call": "calling the tool is all there is to do"}
"""Where junk may pay, and why; saying nothing may not even there."""

QUICKER = {
    "code_gen": ("++code_gen.resources_servers.code_gen.unit_test_timeout_secs=1",),
    "math_with_code": ("++math_with_code.resources_servers.math_with_code.max_execution_time=1",),
}
"""Programs that never end are ended sooner. They take a process each, so that fewer are run."""


def sample(outputs: Sequence[T], count: int, seed: str) -> list[T]:
    return list(outputs) if EVERYTHING or len(outputs) <= count else random.Random(seed).sample(outputs, count)


def outputs_for(env: Opened, is_first: bool) -> Iterator[tuple[dict[str, Any], Output]]:
    """Rows, in turns, and what is said to them."""
    rows, flavor = env.run.rows, env.run.subject.flavor
    worst, more = junk(offered(rows[0]))
    said = [*worst, *sample(more, 120, flavor)] if is_first else sample([*worst, *more], 40, flavor)
    for number, output in enumerate(said):
        yield rows[number % len(rows)], output
    for number, row in enumerate(rows):
        right = env.right_items(row)
        strange = list(spoiled(right, sample(HOSTILE, 4, f"{flavor} {number}")))
        count = SPOILED if is_first else SPOILED // 4
        yield from ((row, output) for output in (*misfit(right), *sample(strange, count, flavor)))


def wrong_with(*, is_stepped: bool, output: Output, answer: Answer) -> str | None:
    """What an answer to such an output may not be, whatever the row."""
    if mishap := answer.mishap():
        return mishap
    if answer.status != 200:
        is_refused = not output.is_response or (is_stepped and answer.status == 400)
        return None if is_refused else f"{answer.status}: {answer.text[:300]}"
    verdict = json.loads(answer.text)
    reward = verdict["reward"]
    if verdict.get("mask_sample"):
        return f"masked with {reward}, {verdict['failure_kind']}: {verdict['failure_reason']}"
    if isinstance(reward, bool) or not isinstance(reward, int | float) or abs(reward) > 1e9:
        return f"the reward {reward!r}"
    return None


def reward_in(answer: Answer) -> float:
    verdict = json.loads(answer.text) if answer.status == 200 else {}
    return 0.0 if verdict.get("mask_sample") else float(verdict.get("reward", 0.0))


async def overpaid(env: Opened, row: dict[str, Any], output: Output, answer: Answer) -> str | None:
    """Why an output should not have got this reward. Junk that is right by luck gets less for another row."""
    audit = env.run.audit
    full, reward = audit.full_for(row), reward_in(answer)
    if answer.status != 200 or audit.reference is None or reward < full or audit.low_for(row) >= full:
        return None
    told = f"the reward {reward}, of {full}"
    if output.says_nothing:
        return told
    if output.is_junk and env.run.name not in UNDEMANDING:
        others = [reward_in(await env.judged(other, output)) < audit.full_for(other) for other in env.run.rows]
        return None if any(others) else told
    if reward > full:
        right = Output("right", tuple(env.right_items(row)))
        return told if reward > reward_in(await env.judged(row, right)) else None
    return None


async def faults_of_outputs(env: Opened, is_first: bool) -> AsyncGenerator[str]:
    for row, output in outputs_for(env, is_first):
        answer = await env.judged(row, output)
        fault = wrong_with(is_stepped=env.is_stepped, output=output, answer=answer)
        fault = fault or await overpaid(env, row, output, answer)
        if fault:
            yield f"{output}: {fault}"


def tools_of(env: Opened) -> list[tuple[str, dict[str, Any]]]:
    """Paths of tools with arguments that they might take."""
    arguments: dict[str, dict[str, Any]] = {}
    for row in env.run.rows:
        for item in env.right_items(row):
            if item.get("type") == "function_call":
                arguments.setdefault(item["name"], json.loads(item["arguments"]))
        for tool in row["responses_create_params"].get("tools") or []:
            properties = (tool.get("parameters") or {}).get("properties") or {}
            arguments.setdefault(
                tool["name"], {key: "x" if kind.get("type") == "string" else 1 for key, kind in properties.items()}
            )
    found = []
    for path in env.tool_routes:
        if "{" not in path:
            found.append((path, arguments.get(path.strip("/"), {"a": 1})))
            continue
        odd: dict[str, dict[str, Any]] = {"x" * 3_000: {}, "..%2fverify": {}, "%00": {}, "__class__": {}, "{0}": {}}
        named = sample(list(arguments.items()), TOOLS, path)
        found += [(re.sub(r"\{[^}]*\}", name, path), given) for name, given in (*named, *odd.items())]
    return found


def bodies_for(path: str, valid: dict[str, Any]) -> list[bytes]:
    """What could be posted to a tool."""
    rng = random.Random(path)
    hostile = [(key, text) for key in valid for text in HOSTILE]
    texts = [{**valid, key: text} for key, text in sample(hostile, BODIES, path)]
    huge = [{**valid, key: "a" * 2_000_000} for key in list(valid)[:1]]
    spoilt = [spoiled_body(valid, rng, ODD, most=4, nested=nested) for _ in range(BODIES)]
    return [*sample(RAW, BODIES // 2, path), *spoilt, *(json.dumps(body).encode() for body in (*texts, *huge))]


def secrets_of(row: dict[str, Any]) -> set[str]:
    """Texts of a row that its prompt doesn't show."""
    prompt = json.dumps(row["responses_create_params"], ensure_ascii=False)

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from texts(inner)

    hidden = {key: value for key, value in row.items() if key not in ("responses_create_params", "agent_ref")}
    return {text for text in texts(hidden) if len(text) > 3 and text not in prompt}


async def faults_of_tools(env: Opened) -> AsyncGenerator[str]:
    row = env.run.rows[0]
    secrets = secrets_of(row)
    for path, valid in tools_of(env):
        cookie = await env.begun(row)
        for body in bodies_for(path, valid):
            answer = await env.post(path, body, cookie)
            asked = body.decode(errors="replace")
            leaked = [text for text in secrets if text in answer.text and text not in asked]
            fault = answer.mishap() or (f"tells {leaked[0]!r}" if leaked and answer.status >= 400 else None)
            if not fault and len(answer.text) > 3 * len(body) + 100_000:
                fault = f"{len(answer.text)} characters for {len(body)}"
            if fault:
                yield f"{path[:50]} of {shown(asked)}: {fault}"


async def faults_of(env: Opened, is_first: bool = True, is_whole: bool = True) -> AsyncGenerator[str]:
    """All that is wrong with an environment, and at last, for a whole one, whether right answers are still right."""
    async for fault in faults_of_outputs(env, is_first):
        yield fault
    async for fault in faults_of_tools(env):
        yield fault
    finding = await env.run.reference(is_stated=True)
    if finding.verdict == "FAILED" and is_whole:
        yield f"afterwards: {finding.note}"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is not logged, and patterns that take for ever take a second."""
    for logger in ("nemo_gym.server_utils", "nemo_gym.onefile.episode"):
        caplog.set_level(logging.CRITICAL, logger)
    monkeypatch.setattr(patterns, "SECONDS", 1.0)


@pytest.mark.parametrize(("name", "subject"), SERVED, ids=[f"{name}/{subject.flavor}" for name, subject in SERVED])
async def test_hostile_models_harm_nothing(name: str, subject: Subject) -> None:
    missing = missing_packages(subject.folder)
    try:
        async with opened(name, subject, QUICKER.get(name, ())) as env:
            is_first = subject in FIRST and name not in QUICKER
            faults = await first_faults(faults_of(env, is_first, is_whole=not missing))
    except GymError as error:
        if not missing:
            raise
        pytest.skip(f"{name} needs {', '.join(missing)}, not installed here: {error}")
    assert not faults, "\n".join(faults)


async def first_faults(faults: AsyncGenerator[str]) -> list[str]:
    """Twenty at most, and none after one that takes long: the next takes longer still."""
    found: list[str] = []
    async with aclosing(faults):
        async for fault in faults:
            found.append(fault)
            if len(found) == 20 or "had no turn" in fault or "no answer" in fault:
                break
    return found


# --- that it finds what it looks for ----------------------------------------------------------------------------------

HEAD = """
import asyncio
import time
from fastapi import HTTPException
from nemo_gym import Environment

env = Environment(tasks=[{"question": "What is 6 * 7?", "answer": "forty-two"}], state=list)
seen = []


def stall():
    "Half a second of what nothing interrupts."
    begun = time.process_time()
    sum(range(1_000_000))
    sum(range(int(500_000 / (time.process_time() - begun))))


@env.tool
async def look(at: str, state: list) -> str:
    "Look."
    TOOL


@env.reference
def right(task):
    return "Answer: forty-two"


@env.verify
async def verify(response, task, state):
    text, is_right = response.text, response.text == "Answer: forty-two"
"""
Tried = Callable[..., Any]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """The first fault, or the first with this text, of an environment with this verifier and tool."""

    async def run(verifier: str, tool: str = "", fault: str = "") -> str | None:
        path = tmp_path / "tried.py"
        path.write_text(HEAD.replace("TOOL", tool or 'return "A wall."') + textwrap.indent(verifier, "    "))
        component = cached_component(path, tmp_path / "cache")
        monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(component.root))
        faults_in = faults_of_tools if tool else faults_of
        async with opened("tried", subjects("tried")[0]) as env, aclosing(faults_in(env)) as faults:
            return await anext((found async for found in faults if fault in found), None)

    return run


@pytest.mark.parametrize(
    ("verdict", "fault"),
    [
        ({"reward": 0.0}, None),
        ({"reward": -1, "mask_sample": False}, None),
        ({"reward": True}, "the reward True"),
        ({"reward": 1e300}, "the reward 1e+300"),
        (
            {"reward": 0.0, "mask_sample": True, "failure_kind": "verifier_error", "failure_reason": "?"},
            "masked with 0.0",
        ),
    ],
)
def test_a_model_may_not_have_its_rollout_masked(verdict: dict[str, Any], fault: str | None) -> None:
    found = wrong_with(is_stepped=False, output=Output("any", ()), answer=Answer(200, json.dumps(verdict)))
    assert found is None if fault is None else found is not None and found.startswith(fault)


async def test_a_sound_environment_has_no_faults(tried: Tried) -> None:
    assert await tried("return is_right") is None


@pytest.mark.parametrize(
    ("verifier", "tool", "fault"),
    [
        ("assert '{{' not in text", "", "500: "),
        ("float(text.partition('boxed{')[2].partition('}')[0] or 0)", "", "500: "),
        (
            "if len(text) > 1_000_000: await asyncio.to_thread(stall)",
            "",
            "the event loop had no turn",
        ),
        ("len(text) > 1_000_000 and text * 150", "", "MB of memory"),
        ("if 'Answer: A' in text: return 1.0", "", "the reward 1.0, of 1"),
        ("if not text.strip(): return 1.0", "", "the reward 1.0, of 1"),
        ("if not is_right and 'forty-two' in text.lower(): return 2.0", "", "the reward 2.0, of 1"),
        ("seen.append(text)\nif len(seen) > 99: return 0.0", "", "afterwards: "),
        ("if '\\0' in text: return float('nan')", "", "500: "),
        ("", "raise HTTPException(400, 'It is forty-two.')", "tells 'forty-two'"),
        ("", "return 'It says ' + at * 100", "characters for"),
        ("", "return str(len(at) > 1_500_000 and stall())", "the event loop had no turn"),
    ],
)
async def test_each_fault_is_found(
    tried: Tried, verifier: str, tool: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "MOST_HELD", 0.3)
    assert await tried(f"{verifier}\nreturn is_right", tool, fault) is not None
