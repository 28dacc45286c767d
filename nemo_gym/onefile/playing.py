"""Trying an environment without a server: replies written beforehand, tools called, the outcome verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.episode import Episode, ToolFailure, as_text
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.testing.replies import Replies, Script
from nemo_gym.testing.responses import Item, call_output, response
from nemo_gym.verifiers.tool_calls import parse_arguments

MOST_REPLIES = 200
CLOSING = "Done."


@dataclass(frozen=True)
class Played:
    """What came of it. `outputs` are what the tools answered, in order."""

    reward: float
    reason: str = ""
    parts: dict[str, float] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    state: Any = None


async def played(environment: Environment, task: Mapping[str, Any], replies: Replies) -> Played:
    """Raises EnvironmentFileError for a verifier that isn't there or returns no reward; its own errors come through."""
    environment.verifier  # noqa: B018 - said before anything is tried
    episode = await Episode.begin(environment, dict(task))
    script, output, seen = Script(replies, after=CLOSING), list[Item](), ""
    outputs: list[str] = []
    for _ in range(environment.max_steps or MOST_REPLIES):
        items = script.next(seen)
        output += items
        answered = [
            call_output(await _answer(episode, item), item["call_id"])
            for item in items
            if item["type"] == "function_call"
        ]
        if not answered:
            break
        output += answered
        outputs += [str(item["output"]) for item in answered]
        seen = "\n".join(outputs[-len(answered) :])
    verdict = await episode.verify(NeMoGymResponse.model_validate(response(*output)))
    return Played(verdict.reward, verdict.reason, verdict.parts, outputs, episode.state)


async def _answer(episode: Episode, item: Item) -> str:
    """What a call is answered, as through an agent."""
    tools = episode.environment.tools
    tool = tools.get(item["name"])
    if tool is None:
        known = f"The tools are: {', '.join(tools)}." if tools else "There are no tools."
        return as_text({"error": f"There is no tool {item['name']!r}. {known}"})
    arguments = parse_arguments(item["arguments"])
    if arguments.problem is not None:
        return as_text({"error": f"Invalid tool call arguments: {arguments.problem.value}"})
    try:
        return as_text(await episode.call(tool, tool.validated(arguments.values)))
    except (ToolFailure, ValueError) as error:
        return as_text({"error": str(error)})
