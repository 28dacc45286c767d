"""The plain tool calling agent: a model, the tools its row offers, and a loop until the model is done."""

from functools import partial
from typing import Any, ClassVar

from fastapi import Request, Response
from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSessionState,
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status
from nemo_gym.server_utils import request as http_request
from responses_api_agents.simple_agent.activation import Activation, ObservedActivation
from responses_api_agents.simple_agent.conversation import Conversation, cookie_values
from responses_api_agents.simple_agent.environment import metrics_at, release_in_background
from responses_api_agents.simple_agent.recording import Recording, add_resolution, take_trajectory, with_trajectory
from responses_api_agents.simple_agent.sessions import SimpleAgentSessionState, session_state
from responses_api_agents.simple_agent.tools import offered_tools


class SimpleAgentConfig(BaseResponsesAPIAgentConfig):
    """`max_steps` bounds the model calls of an activation, `max_tool_output_bytes` what a tool may answer, instead of
    which the model then reads that it was too long; none or 0 for no bound. Without `execute_tools` an activation ends
    with the calls the model asks for."""

    resources_server: ResourcesServerRef | None = None
    model_server: ModelServerRef
    max_steps: int | None = Field(default=None, ge=0)
    execute_tools: bool = True
    max_tool_output_bytes: int | None = Field(default=10_000_000, ge=0)


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
        try:
            return await self._run_seeded(resources_server, body, row, cookies)
        except BaseException:
            release_in_background(self.server_client, resources_server, cookies)
            raise

    async def _run_seeded(
        self, resources_server: str, body: SimpleAgentRunRequest, row: dict[str, Any], cookies: dict[str, str]
    ) -> SimpleAgentVerifyResponse:
        # A post to itself, so that a subclass's `responses`, and whoever watches the calls, takes part in it.
        answer = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=cookies,
        )
        await raise_for_status(answer)
        response = await get_response_json(answer)
        trajectory = take_trajectory(response, row) if self._capture_correlation_enabled() else None
        verification = row | {"response": response}
        if self.config.skip_verification:
            verdict = verification | {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        else:
            verdict = await self._verify(resources_server, verification, cookie_values(answer.cookies))
        if trajectory is not None:
            add_resolution(trajectory, verdict)
            verdict["ng_trajectory"] = trajectory
        return SimpleAgentVerifyResponse.model_validate(verdict)

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Call the model, and the tools it asks for, until it is done."""
        session = self._session_of(request)
        activation = self._activation(request, body, session)
        try:
            result = await activation.run()
        except BaseException as error:
            if session is not None and activation.recording is not None:
                conversation = activation.conversation.input_items()
                session.add(activation.recording, activation.recording.invocation("failed", conversation, error))
            raise
        for name, value in {**({} if session else activation.cookies), **(activation.model_cookies or {})}.items():
            response.set_cookie(name, value)
        return self._observed(result, request, activation, session)

    def _activation(
        self,
        request: Request,
        body: NeMoGymResponseCreateParamsNonStreaming,
        session: SimpleAgentSessionState | None,
    ) -> Activation:
        return Activation(
            conversation=Conversation(body),
            offered=offered_tools(body.tools),
            ask_model=partial(self._ask_model, request),
            post_tool=partial(self._post_tool, session),
            cookies=session.resources_cookies if session else cookie_values(request.cookies),
            max_steps=self.config.max_steps,
            execute_tools=self.config.execute_tools,
            max_tool_output_bytes=self.config.max_tool_output_bytes,
            recording=self._recording(request, session),
        )

    async def _ask_model(
        self, request: Request, sent: Any, cookies: dict[str, str] | None
    ) -> tuple[Any, dict[str, str]]:
        answer = await self.server_client.post(
            server_name=self.config.model_server.name,
            url_path=self.url_path_for_request("/v1/responses", request),
            json=sent,
            cookies=cookies,
        )
        await raise_for_status(answer)
        return await get_response_json(answer), cookie_values(answer.cookies)

    async def _post_tool(
        self,
        session: SimpleAgentSessionState | None,
        name: str,
        url_path: str,
        arguments: dict[str, Any],
        cookies: dict[str, str],
    ) -> Any:
        if session is not None:
            if session.tool_access is None:
                raise RuntimeError(f"the session grants {self.config.name} no way to call the tool {name!r}")
            access = session.tool_access
            url = str(access.base_url).rstrip("/") + url_path
            return await http_request("POST", url, json=arguments, headers=access.headers, cookies=cookies)
        if self.config.resources_server is None:
            raise RuntimeError(f"{self.config.name} has no resources_server to call the tool {name!r} of")
        return await self.server_client.post(
            server_name=self.config.resources_server.name, url_path=url_path, json=arguments, cookies=cookies
        )

    def _recording(self, request: Request, session: SimpleAgentSessionState | None) -> Recording | None:
        """Kept in every session, and for the trajectory of a rollout that is observed."""
        if session is not None:
            return Recording(session.next_invocation_id(), self.config.model_server)
        is_observed = self._model_call_capture_enabled() and _rollout_id_of(request) is not None
        return Recording("root", self.config.model_server) if is_observed else None

    def _observed(
        self,
        result: NeMoGymResponse,
        request: Request,
        activation: ObservedActivation,
        session: SimpleAgentSessionState | None,
    ) -> NeMoGymResponse:
        recording, rollout_id = activation.recording, _rollout_id_of(request)
        if recording is None:
            return result
        invocation = recording.invocation(activation.status, activation.conversation.input_items())
        if session is not None:
            session.add(recording, invocation)
            return result
        assert rollout_id is not None
        return with_trajectory(result, recording.trajectory(rollout_id, invocation))

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """The metrics of the resources server, which knows what its rewards mean."""
        if self.config.resources_server is None or self.config.skip_verification:
            return await super().aggregate_metrics(body)
        return await metrics_at(self.server_client, self.config.resources_server.name, body)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> SimpleAgentSessionState:
        return session_state(body, self.effective_tool_accesses(body))

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        assert isinstance(state, SimpleAgentSessionState)
        return state.closing()

    def _session_of(self, request: Request) -> SimpleAgentSessionState | None:
        """The session a request belongs to, None outside of one; HTTPException 409 for one that isn't open."""
        session_id = self._agent_session_id_from_request(request)
        if session_id is None:
            return None
        state = self._require_agent_session(session_id)
        assert isinstance(state, SimpleAgentSessionState)
        return state

    # --- parts of a rollout ------------------------------------------------------------------------------------------

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


def _rollout_id_of(request: Request) -> str | None:
    rollout_id = request.path_params.get("rollout_id")
    return rollout_id if isinstance(rollout_id, str) else None


if __name__ == "__main__":
    SimpleAgent.run_webserver()
