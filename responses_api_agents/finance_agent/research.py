"""One activation of the agent: the model works with its tools until it submits a result, or a budget is used up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseFunctionToolCall
from responses_api_agents.finance_agent.failures import ModelCallTimeoutError, described
from responses_api_agents.finance_agent.overflow import error_text, is_context_overflow
from responses_api_agents.finance_agent.transcript import Transcript
from responses_api_agents.simple_agent.activation import AskModel, PostTool
from responses_api_agents.simple_agent.conversation import cookie_values, tool_calls
from responses_api_agents.simple_agent.environment import raise_for_lost_session
from responses_api_agents.simple_agent.recording import Recording
from responses_api_agents.simple_agent.tools import RefusedToolCall, parsed_arguments, tool_output, tool_path

T = TypeVar("T")


class StopReason(StrEnum):
    """Why an activation ended."""

    DONE_TOOL = "done_tool"
    MAX_TURNS = "max_turns"
    MAX_TIME = "max_time"
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    TEXT_ONLY = "text_only"
    ERROR = "error"


@dataclass(frozen=True)
class Budgets:
    """Bounds of an activation, in model calls, seconds and bytes; None for no bound."""

    max_steps: int | None
    max_time_seconds: float | None
    model_call_timeout: float | None
    tool_call_timeout: float | None
    max_tool_output_bytes: int | None = None


@dataclass(frozen=True)
class Habits:
    """How an activation goes on and when it ends; see the agent's settings."""

    done_tools: tuple[str, ...]
    no_tool_call_nudge: str
    continue_if_not_tool_call: bool
    truncate_on_overflow: bool
    abort_on_tool_error_types: tuple[str, ...]


@dataclass
class Research:
    """`cookies` are the resources server's. After `run`, `failure` is what went wrong that isn't the model's fault."""

    conversation: Transcript
    offered: list[str]
    ask_model: AskModel
    post_tool: PostTool
    cookies: dict[str, str]
    budgets: Budgets
    habits: Habits
    recording: Recording | None = None
    model_cookies: dict[str, str] | None = None
    failure: BaseException | str | None = None
    status: Literal["completed", "incomplete"] = "incomplete"
    steps: int = 0
    dropped: int = 0
    _started: float = field(default_factory=time.monotonic)

    async def run(self) -> NeMoGymResponse:
        """The last response with everything before it, why it ended and after how many model calls in its metadata.

        Raises what the first model call raised, when there is no response at all.
        """
        reason = await self._stop_reason()
        self.status = "completed" if reason in (StopReason.DONE_TOOL, StopReason.TEXT_ONLY) else "incomplete"
        if not self.conversation.has_response:
            if isinstance(self.failure, BaseException):
                raise self.failure
            raise ModelCallTimeoutError(
                f"max_time_seconds ({self.budgets.max_time_seconds}) leaves no time for a model call"
            )
        result = self.conversation.result()
        facts = {"stop_reason": str(reason), "steps": str(self.steps)}
        facts |= {"dropped_exchanges": str(self.dropped)} if self.dropped else {}
        facts |= described(self.failure) if self.failure is not None else {}
        return result.model_copy(update={"metadata": {**(result.metadata or {}), **facts}})

    async def _stop_reason(self) -> StopReason:
        while self.budgets.max_steps is None or self.steps < self.budgets.max_steps:
            if self._is_over_time():
                return StopReason.MAX_TIME
            self.steps += 1
            try:
                turn = await self._next_turn()
            except Exception as error:
                if self._made_shorter(error):
                    continue
                self.failure = None if self._is_too_long(error) and self.conversation.has_response else error
                return StopReason.ERROR
            reason = await self._after(turn)
            if reason is not None:
                return reason
        return StopReason.MAX_TURNS

    async def _next_turn(self) -> NeMoGymResponse:
        question = self.conversation.input_items() if self.recording else []
        asked_at = time.time()
        asked = self.ask_model(self.conversation.next_request(), self.model_cookies)
        try:
            raw, self.model_cookies = await _within(self.budgets.model_call_timeout, asked)
        except _TooSlowError as slow:
            raise ModelCallTimeoutError(f"the model call took more than {slow.seconds:g} s") from slow
        turn = self.conversation.add_response(raw)
        if self.recording:
            self.recording.add_turn(question, asked_at, raw)
        return turn

    def _is_too_long(self, error: Exception) -> bool:
        return not isinstance(error, TimeoutError) and is_context_overflow(error_text(error))

    def _made_shorter(self, error: Exception) -> bool:
        if not self.habits.truncate_on_overflow or not self._is_too_long(error):
            return False
        is_shorter = self.conversation.drop_oldest_exchange()
        self.dropped += is_shorter
        return is_shorter

    async def _after(self, turn: NeMoGymResponse) -> StopReason | None:
        if turn.incomplete_details is not None and turn.incomplete_details.reason == "max_output_tokens":
            return StopReason.MAX_OUTPUT_TOKENS
        calls = tool_calls(turn)
        if not calls and any(item.type == "message" for item in turn.output):
            if not self.habits.continue_if_not_tool_call:
                return StopReason.TEXT_ONLY
            self.conversation.add_user_message(self.habits.no_tool_call_nudge)
        for call in calls:
            output, is_made = await self._tool_output(call)
            self.conversation.add_tool_output(call.call_id, output)
            if call.name in self.habits.done_tools and is_made:
                return StopReason.DONE_TOOL
            if (problem := self._reason_to_abort(output)) is not None:
                self.failure = problem
                return StopReason.ERROR
        return None

    async def _tool_output(self, call: NeMoGymResponseFunctionToolCall) -> tuple[str, bool]:
        """What the tool answered, or why it gave no answer, and whether there is such a tool."""
        started_at = time.time()
        output: str | None = None
        error_type: str | None = None
        is_made = False
        try:
            url_path = tool_path(call.name, self.offered)
            is_made = True
            output, error_type = await self._called(call, url_path)
        except RefusedToolCall as refused:
            output, error_type = refused.output, refused.error_type
            if is_made:
                output = _with_advice(refused.args[0])
        except TimeoutError:
            output, error_type = _with_advice(f"Tool {call.name} gave no answer in time"), "TimeoutError"
        except _SessionLostError as lost:
            error_type = type(lost.cause).__name__
            raise lost.cause from None
        except Exception as error:
            output = _with_advice(f"Tool {call.name} failed: {type(error).__name__}: {str(error)[:500]}")
            error_type = type(error).__name__
        finally:
            if self.recording:
                self.recording.add_tool_call(call, started_at, output=output, error_type=error_type)
        return output, is_made

    async def _called(self, call: NeMoGymResponseFunctionToolCall, url_path: str) -> tuple[str, str | None]:
        async def post() -> tuple[Any, bytes]:
            answer = await self.post_tool(call.name, url_path, parsed_arguments(call.arguments), self.cookies)
            return answer, await answer.read()

        answer, content = await _within(self.budgets.tool_call_timeout, post())
        try:
            await raise_for_lost_session(answer)
        except Exception as error:
            raise _SessionLostError(error) from error
        self.cookies = cookie_values(answer.cookies) or self.cookies
        error_type = None if 200 <= answer.status < 400 else f"http_{answer.status}"
        return tool_output(content, self.budgets.max_tool_output_bytes), error_type

    def _reason_to_abort(self, output: str) -> str | None:
        kinds = tuple(f"{kind}:" for kind in self.habits.abort_on_tool_error_types)
        error = _error_in(output) if kinds else None
        return error if error is not None and error.startswith(kinds) else None

    def _is_over_time(self) -> bool:
        limit = self.budgets.max_time_seconds
        return limit is not None and time.monotonic() - self._started >= limit


class _SessionLostError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class _TooSlowError(TimeoutError):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds = seconds


async def _within(seconds: float | None, work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as error:
        if seconds is not None and limit.expired():
            raise _TooSlowError(seconds) from error
        raise


def _with_advice(problem: str) -> str:
    return json.dumps({"error": f"{problem}. Try something else, or submit what you have."})


def _error_in(output: str) -> str | None:
    """The `error` that an answer is about: its own, or that of the JSON in its `results`."""
    for _ in range(2):
        try:
            content = json.loads(output)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict):
            return None
        if isinstance(content.get("error"), str):
            return str(content["error"])
        if not isinstance(content.get("results"), str):
            return None
        output = content["results"]
    return None
