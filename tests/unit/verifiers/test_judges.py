from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.config.errors import ConfigError
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym.testing.judges import ScriptedJudge
from nemo_gym.testing.responses import message, reasoning, response
from nemo_gym.verifiers.judges import Judge, JudgeSettings, issues_of, template_at
from nemo_gym.verifiers.judging import Position

LABELS = ("[[A=B]]", "[[A!=B]]")


def settings(**changes: Any) -> JudgeSettings:
    required = {
        "judge_model_server": {"type": "responses_api_models", "name": "referee"},
        "judge_responses_create_params": {"input": [], "temperature": 0.5},
    }
    return JudgeSettings.model_validate(required | changes)


def judge(client: ScriptedJudge, **changes: Any) -> Judge:
    return Judge(settings(**changes), client, call_judge)


@pytest.mark.parametrize(
    ("system", "changes", "roles"),
    [
        (None, {}, [("user", "Same?")]),
        (None, {"judge_system_message": "Be strict."}, [("system", "Be strict."), ("user", "Same?")]),
        ("Be kind.", {"judge_system_message": "Be strict."}, [("system", "Be kind."), ("user", "Same?")]),
    ],
)
async def test_what_is_asked(system: str | None, changes: dict[str, Any], roles: list[tuple[str, str]]) -> None:
    client = ScriptedJudge("[[A=B]]")
    evaluation = await judge(client, **changes).evaluate("Same?", LABELS, system=system)
    [asked] = client.asked
    assert [(each["role"], each["content"]) for each in asked["input"]] == roles
    assert (asked["temperature"], client.servers) == (0.5, ["referee"])
    assert evaluation.responses_create_params.model_dump(mode="json") == asked


@pytest.mark.parametrize(
    ("reply", "position", "label", "issues"),
    [
        ("[[A=B]]", Position.LAST, "[[A=B]]", []),
        (response(message("[[A!=B]]", "[[A=B]]")), Position.LAST, "[[A=B]]", []),
        ("[[A=B]] [[A!=B]]", Position.FIRST, "[[A=B]]", ["conflicting_verdicts"]),
        ("[[A=B]] it is", Position.FINAL, None, ["no_verdict"]),
        (response("[[A=B]]", reasoning()), Position.LAST, None, ["unparseable_judge_output"]),
        (response("[[A=B]]", status="incomplete"), Position.LAST, "[[A=B]]", ["truncated_judge_output"]),
    ],
)
async def test_what_is_read(reply: Any, position: Position, label: str | None, issues: list[str]) -> None:
    evaluation = await judge(ScriptedJudge(reply)).evaluate("?", LABELS, position=position)
    stored = evaluation.model_dump(mode="json")
    assert (stored["verdict_label"], stored.get("judgement_parsing_issues", [])) == (label, issues)
    assert ("judgement_parsing_issues" in stored) == bool(issues)
    stored.pop("judgement_parsing_issues", None)
    assert issues_of(stored, LABELS, position) == issues


def test_issues_of_records_that_keep_no_reply() -> None:
    assert issues_of({"response": None}, LABELS) == ["unparseable_judge_output"]
    assert issues_of({"response": None, "judgement_parsing_issues": ["no_verdict"]}, LABELS) == ["no_verdict"]


async def test_a_judge_that_is_asked_over_chat_completions() -> None:
    client = ScriptedJudge("A", 503)
    params = NeMoGymChatCompletionCreateParamsNonStreaming(messages=[{"role": "user", "content": "?"}], max_tokens=5)
    answer = await judge(client).ask_chat(params)
    assert answer.choices[0].message.content == "A"
    assert (client.prompts, client.asked[0]["max_tokens"], client.servers) == (["?"], 5, ["referee"])
    with pytest.raises(JudgeError):
        await judge(client).ask_chat(params)


@pytest.mark.parametrize("reply", [503, {"no": "response"}, TimeoutError("late")])
async def test_a_judge_that_can_not_be_asked(reply: Any) -> None:
    with pytest.raises(JudgeError):
        await judge(ScriptedJudge(reply)).evaluate("?", LABELS)


@pytest.mark.parametrize(("limit", "most"), [(2, 2), (None, 5)])
async def test_no_more_calls_at_once_than_allowed(limit: int | None, most: int) -> None:
    running, seen, go = 0, 0, asyncio.Event()

    async def slow(prompt: str) -> str:
        nonlocal running, seen
        running += 1
        seen = max(seen, running)
        await go.wait()
        running -= 1
        return "[[A=B]]"

    asking = judge(ScriptedJudge(slow), judge_endpoint_max_concurrency=limit)
    calls = [asyncio.create_task(asking.evaluate("?", LABELS)) for _ in range(5)]
    await asyncio.wait(calls, timeout=0.05)  # all that may start have started: they need nothing but the loop
    go.set()
    await asyncio.gather(*calls)
    assert seen == most


def test_at_least_one_call_at_once() -> None:
    with pytest.raises(ValidationError):
        settings(judge_endpoint_max_concurrency=0)


def test_a_template_is_of_the_component_or_a_root(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("\nown {question}\n")
    assert template_at("key", "prompt.txt", tmp_path) == "own {question}"
    assert template_at("key", str(tmp_path / "prompt.txt"), Path("elsewhere")) == "own {question}"
    with pytest.raises(ConfigError, match=r"^key: nowhere\.txt can't be read"):
        template_at("key", "nowhere.txt", tmp_path)
    (tmp_path / "bytes.txt").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bytes\.txt can't be read"):
        template_at("key", "bytes.txt", tmp_path)
