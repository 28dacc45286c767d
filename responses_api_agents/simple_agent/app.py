"""The plain tool calling agent: a model, the tools its row offers, and a loop until the model is done."""

from typing import Any, ClassVar

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
)
from nemo_gym.server_utils import get_response_json, raise_for_status
from responses_api_agents.simple_agent.conversation import Conversation, cookie_values, mark_unfinished, tool_calls
from responses_api_agents.simple_agent.tools import RefusedToolCall, offered_tools, parsed_arguments, tool_path


class SimpleAgentConfig(BaseResponsesAPIAgentConfig):
    """`max_steps` bounds the model calls of an activation; none or 0 for no bound. Without `execute_tools` an
    activation ends with the calls the model asks for."""

    resources_server: ResourcesServerRef | None = None
    model_server: ModelServerRef
    max_steps: int | None = Field(default=None, ge=0)
    execute_tools: bool = True


class SimpleAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class SimpleAgent(SimpleResponsesAPIAgent):
    config: SimpleAgentConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def run(  # type: ignore[override]
        self, request: Request, body: SimpleAgentRunRequest = Body()
    ) -> SimpleAgentVerifyResponse:
        """Open a session of the environment, respond, and have the response verified."""
        resources_server = self._resources_server_for_run()
        row = body.model_dump()
        cookies = await self._seed(resources_server, row, cookie_values(request.cookies))
        # A post to itself, so that a subclass's `responses`, and whoever watches the calls, takes part in it.
        answer = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=cookies,
        )
        await raise_for_status(answer)
        verification = row | {"response": await get_response_json(answer)}
        if self.config.skip_verification:
            verdict = verification | {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        else:
            verdict = await self._verify(resources_server, verification, cookie_values(answer.cookies))
        return SimpleAgentVerifyResponse.model_validate(verdict)

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Call the model, and the tools it asks for, until it is done."""
        conversation, offered = Conversation(body), offered_tools(body.tools)
        resources_cookies, model_cookies = cookie_values(request.cookies), None
        step = 0
        while True:
            step += 1
            answer = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=conversation.next_request(),
                cookies=model_cookies,
            )
            await raise_for_status(answer)
            model_cookies = cookie_values(answer.cookies)
            turn = conversation.add_response(await get_response_json(answer))
            if not await self._answered_calls(turn, conversation, offered, resources_cookies):
                break
            if self.config.max_steps and step >= self.config.max_steps:
                break
        for name, value in (resources_cookies | model_cookies).items():
            response.set_cookie(name, value)
        return conversation.result()

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """The metrics of the resources server, which knows what its rewards mean."""
        if self.config.resources_server is None or self.config.skip_verification:
            return await super().aggregate_metrics(body)
        answer = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(answer)
        return AggregateMetrics.model_validate(await get_response_json(answer))

    async def _answered_calls(
        self,
        turn: NeMoGymResponse,
        conversation: Conversation,
        offered: list[str],
        cookies: dict[str, str],
    ) -> bool:
        """Whether the model is to go on: it asked for tools, and has their outputs now. `cookies` follow theirs."""
        if turn.incomplete_details:
            return False
        calls = tool_calls(turn)
        if not calls:
            mark_unfinished(turn)
            return False
        if not self.config.execute_tools:
            return False
        for call in calls:
            conversation.add_tool_output(call.call_id, await self._tool_output(call, offered, cookies))
        return True

    async def _tool_output(
        self, call: NeMoGymResponseFunctionToolCall, offered: list[str], cookies: dict[str, str]
    ) -> str:
        """What the tool answered, whatever its status; for a call that isn't made, why."""
        try:
            url_path, arguments = tool_path(call.name, offered), parsed_arguments(call.arguments)
        except RefusedToolCall as refused:
            return refused.output
        if self.config.resources_server is None:
            raise RuntimeError(f"{self.config.name} has no resources_server to call the tool {call.name!r} of")
        answer = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path=url_path, json=arguments, cookies=cookies
        )
        cookies.update(cookie_values(answer.cookies))
        return (await answer.read()).decode("utf-8", errors="replace")

    def _resources_server_for_run(self) -> str:
        if not self.config.execute_tools:
            raise ValueError(f"{self.config.name} has execute_tools: false, so it takes part in sessions only")
        if self.config.resources_server is None:
            raise ValueError(f"{self.config.name} needs a resources_server to run rollouts; name one in its config")
        return self.config.resources_server.name

    async def _seed(self, resources_server: str, row: dict[str, Any], cookies: dict[str, str]) -> dict[str, str]:
        answer = await self.server_client.post(
            server_name=resources_server, url_path="/seed_session", json=row, cookies=cookies
        )
        await raise_for_status(answer)
        return cookie_values(answer.cookies)

    async def _verify(self, resources_server: str, verification: dict[str, Any], cookies: dict[str, str]) -> Any:
        answer = await self.server_client.post(
            server_name=resources_server, url_path="/verify", json=verification, cookies=cookies
        )
        await raise_for_status(answer)
        return await get_response_json(answer)


if __name__ == "__main__":
    SimpleAgent.run_webserver()
