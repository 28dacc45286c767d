"""One activation of the agent: the model is called, and the tools it asks for, until it is done."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseFunctionToolCall
from responses_api_agents.simple_agent.conversation import Conversation, cookie_values, mark_unfinished, tool_calls
from responses_api_agents.simple_agent.environment import raise_for_lost_session
from responses_api_agents.simple_agent.recording import Recording
from responses_api_agents.simple_agent.tools import RefusedToolCall, parsed_arguments, tool_output, tool_path

AskModel = Callable[[Any, dict[str, str] | None], Awaitable[tuple[Any, dict[str, str]]]]
"""Given a request and the model server's cookies: its answer's JSON, and its cookies now."""

PostTool = Callable[[str, str, dict[str, Any], dict[str, str]], Awaitable[Any]]
"""Given a tool's name and path, arguments and the resources server's cookies: the HTTP answer, whatever its status."""


class ObservedActivation(Protocol):
    """What a trajectory is made of."""

    recording: Recording | None
    status: Literal["completed", "incomplete"]

    @property
    def conversation(self) -> Conversation: ...


@dataclass
class Activation:
    """`cookies` are the resources server's; each tool call sends them and adds to them."""

    conversation: Conversation
    offered: list[str]
    ask_model: AskModel
    post_tool: PostTool
    cookies: dict[str, str]
    max_steps: int | None
    execute_tools: bool
    max_tool_output_bytes: int | None = None
    recording: Recording | None = None
    model_cookies: dict[str, str] | None = None
    status: Literal["completed", "incomplete"] = "incomplete"

    async def run(self) -> NeMoGymResponse:
        """The last response, with everything that came before it in its output."""
        step = 0
        while True:
            step += 1
            turn = await self._next_turn()
            if not await self._answered_calls(turn):
                break
            if self.max_steps and step >= self.max_steps:
                break
        return self.conversation.result()

    async def _next_turn(self) -> NeMoGymResponse:
        question = self.conversation.input_items() if self.recording else []
        asked_at = time.time()
        raw, self.model_cookies = await self.ask_model(self.conversation.next_request(), self.model_cookies)
        turn = self.conversation.add_response(raw)
        if self.recording:
            self.recording.add_turn(question, asked_at, raw)
        return turn

    async def _answered_calls(self, turn: NeMoGymResponse) -> bool:
        """Whether the model is to go on: it asked for tools, and has their outputs now."""
        if turn.incomplete_details:
            return False
        calls = tool_calls(turn)
        if not calls:
            mark_unfinished(turn)
            self.status = "incomplete" if turn.status == "incomplete" else "completed"
            return False
        if not self.execute_tools:
            self.status = "completed"
            return False
        for call in calls:
            self.conversation.add_tool_output(call.call_id, await self._tool_output(call))
        return True

    async def _tool_output(self, call: NeMoGymResponseFunctionToolCall) -> str:
        """What the tool answered, whatever its status; why, for a call that isn't made or an answer that isn't read."""
        started_at = time.time()
        output: str | None = None
        error_type: str | None = None
        try:
            url_path, arguments = tool_path(call.name, self.offered), parsed_arguments(call.arguments)
            answer = await self.post_tool(call.name, url_path, arguments, self.cookies)
            await raise_for_lost_session(answer)
            self.cookies.update(cookie_values(answer.cookies))
            output = tool_output(await answer.read(), self.max_tool_output_bytes)
            error_type = None if 200 <= answer.status < 400 else f"http_{answer.status}"
            return output
        except RefusedToolCall as refused:
            output, error_type = refused.output, refused.error_type
            return output
        except BaseException as error:
            error_type = type(error).__name__
            raise
        finally:
            if self.recording:
                self.recording.add_tool_call(call, started_at, output=output, error_type=error_type)
