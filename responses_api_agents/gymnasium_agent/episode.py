"""One episode: the model speaks, the environment answers, until either is done."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_observability import TrajectoryToolCall
from resources_servers.gymnasium import EnvStepResponse
from responses_api_agents.gymnasium_agent.environment import Environment
from responses_api_agents.simple_agent.conversation import Conversation, tool_calls
from responses_api_agents.simple_agent.recording import Recording

AskModel = Callable[[Any, dict[str, str] | None], Awaitable[tuple[Any, dict[str, str]]]]
"""Given a request and the model server's cookies: its answer's JSON, and the cookies it sets."""


@dataclass
class Episode:
    """`reward` adds up the steps; `last` is the answer to the last one."""

    environment: Environment
    conversation: Conversation
    ask_model: AskModel
    recording: Recording | None = None
    model_cookies: dict[str, str] | None = None
    reward: float = 0.0
    last: EnvStepResponse = field(default_factory=EnvStepResponse)

    async def play(self, max_steps: int) -> None:
        """Step until the environment ends the episode; one that takes more than `max_steps` is truncated."""
        for _ in range(max_steps):
            raw, turn = await self._next_turn()
            self.last = await self.environment.step(raw)
            self.reward += self.last.reward
            if self.last.terminated or self.last.truncated:
                return
            self._go_on(turn)
        self.last.truncated = True

    async def _next_turn(self) -> tuple[Any, NeMoGymResponse]:
        question = self.conversation.input_items() if self.recording else []
        asked_at = time.time()
        raw, cookies = await self.ask_model(self.conversation.next_request(), self.model_cookies)
        self.model_cookies = {**(self.model_cookies or {}), **cookies}
        turn = self.conversation.add_response(raw)
        if self.recording:
            self.recording.add_turn(question, asked_at, raw)
        return raw, turn

    def _go_on(self, turn: NeMoGymResponse) -> None:
        """What the environment answered goes into the conversation: results of tools, then what it shows."""
        names = {call.call_id: call.name for call in tool_calls(turn)}
        outputs = self.last.info.get("tool_outputs")
        for item in outputs if isinstance(outputs, list) else ():
            call_id, output = self._tool_output(item)
            self.conversation.add_tool_output(call_id, output)
            if self.recording:
                self._record_tool_call(call_id, names.get(call_id), output)
        if self.last.observation is not None:
            self.conversation.add_user_message(self.last.observation)

    def _tool_output(self, item: Any) -> tuple[str, str]:
        if not isinstance(item, dict) or not isinstance(item.get("call_id"), str) or "output" not in item:
            raise RuntimeError(
                f"{self.environment.server_name} answered a step with {item!r} among info.tool_outputs, which are "
                f"objects with a call_id and an output"
            )
        output = item["output"]
        return item["call_id"], output if isinstance(output, str) else json.dumps(output)

    def _record_tool_call(self, call_id: str, name: str | None, output: str) -> None:
        """The environment ran it within the step, nobody knows for how long."""
        assert self.recording is not None
        self.recording.tool_calls.append(
            TrajectoryToolCall(
                invocation_id=self.recording.invocation_id,
                tool_call_id=call_id,
                tool_name=name,
                status="completed",
                output=output,
            )
        )


def with_observation(
    params: NeMoGymResponseCreateParamsNonStreaming, observation: str | None
) -> NeMoGymResponseCreateParamsNonStreaming:
    """A row's prompt, followed by what the environment shows at the beginning."""
    if observation is None:
        return params
    given = [{"role": "user", "content": params.input}] if isinstance(params.input, str) else params.input
    shown = {"type": "message", "role": "user", "content": observation}
    return type(params).model_validate({**params.model_dump(exclude_unset=True), "input": [*given, shown]})
