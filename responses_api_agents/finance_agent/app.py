"""An agent for research: it keeps the model at work, within budgets, until the model submits a result."""

from __future__ import annotations

import logging
from functools import partial
from typing import ClassVar

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from responses_api_agents.finance_agent.failures import CLASS_KEY, failed_rollout, marked
from responses_api_agents.finance_agent.research import Budgets, Habits, Research, StopReason
from responses_api_agents.finance_agent.transcript import Transcript
from responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyRequest,
    SimpleAgentVerifyResponse,
)
from responses_api_agents.simple_agent.conversation import cookie_values
from responses_api_agents.simple_agent.sessions import SimpleAgentSessionState
from responses_api_agents.simple_agent.tools import offered_tools

__all__ = [
    "FinanceAgent",
    "FinanceAgentConfig",
    "FinanceAgentRunRequest",
    "FinanceAgentVerifyRequest",
    "FinanceAgentVerifyResponse",
    "StopReason",
]

LOG = logging.getLogger(__name__)


class FinanceAgentConfig(SimpleAgentConfig):
    """Times are in seconds; None bounds nothing. `max_steps` counts model calls."""

    max_steps: int | None = Field(default=None, ge=1)
    max_time_seconds: float | None
    model_call_timeout: float | None = Field(default=None, gt=0)
    tool_call_timeout: float | None = Field(default=None, gt=0)
    done_tools: list[str] = ["submit_final_result"]
    no_tool_call_nudge: str
    continue_if_not_tool_call: bool = True
    truncate_on_overflow: bool = False
    abort_on_tool_error_types: list[str]


class FinanceAgentRunRequest(SimpleAgentRunRequest):
    model_config = ConfigDict(extra="allow")


class FinanceAgentVerifyRequest(SimpleAgentVerifyRequest):
    model_config = ConfigDict(extra="allow")


class FinanceAgentVerifyResponse(SimpleAgentVerifyResponse):
    model_config = ConfigDict(extra="allow")


class FinanceAgent(SimpleAgent):
    config: FinanceAgentConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def run(  # type: ignore[override]
        self, request: Request, body: FinanceAgentRunRequest = Body()
    ) -> SimpleAgentVerifyResponse:
        """A rollout. One that fails is answered with reward 0, and marked as no measurement."""
        try:
            verdict = await super().run(request, body)
        except Exception as error:
            LOG.warning("The rollout failed: %r", error)
            row = body.model_dump(mode="json", exclude_unset=True)
            return FinanceAgentVerifyResponse.model_validate(failed_rollout(row, error))
        metadata = verdict.response.metadata or {}
        if CLASS_KEY not in metadata:
            return verdict
        fields = verdict.model_dump(mode="json", exclude_unset=True)
        return FinanceAgentVerifyResponse.model_validate(marked(fields, metadata))

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Have the model work until it submits a result or a budget is used up."""
        session = self._session_of(request)
        research = self._research(request, body, session)
        try:
            result = await research.run()
        except BaseException as error:
            if session is not None and research.recording is not None:
                conversation = research.conversation.input_items()
                session.add(research.recording, research.recording.invocation("failed", conversation, error))
            raise
        if session is not None:
            session.resources_cookies = research.cookies
        for name, value in {**({} if session else research.cookies), **(research.model_cookies or {})}.items():
            response.set_cookie(name, value)
        return self._observed(result, request, research, session)

    def _research(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming, session: SimpleAgentSessionState | None
    ) -> Research:
        config = self.config
        return Research(
            conversation=Transcript(body),
            offered=offered_tools(body.tools),
            ask_model=partial(self._ask_model, request),
            post_tool=partial(self._post_tool, session),
            cookies=session.resources_cookies if session else cookie_values(request.cookies),
            budgets=Budgets(
                config.max_steps,
                config.max_time_seconds,
                config.model_call_timeout,
                config.tool_call_timeout,
                config.max_tool_output_bytes,
            ),
            habits=Habits(
                tuple(config.done_tools),
                config.no_tool_call_nudge,
                config.continue_if_not_tool_call,
                config.truncate_on_overflow,
                tuple(config.abort_on_tool_error_types),
            ),
            recording=self._recording(request, session),
        )


if __name__ == "__main__":
    FinanceAgent.run_webserver()
