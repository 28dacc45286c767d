"""The steps of one turn, each a call of another server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import Morsel
from typing import Any
from uuid import uuid4

from environment_servers.single_agent_turn.failures import failed, failing_at
from environment_servers.single_agent_turn.tool_offers import tool_accesses
from nemo_gym.base_environment_server import CleanupContext, CleanupHandle
from nemo_gym.base_resources_server import (
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
)
from nemo_gym.base_responses_api_agent import (
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
)
from nemo_gym.failure_kinds import FailureStage
from nemo_gym.rollout_observability import AgentObservationBundle
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status, rollout_path_prefix
from nemo_gym.single_agent_turn_types import SingleAgentTurnRequest
from nemo_gym.token_id_capture.config import token_id_capture_enabled_for_agent


@dataclass
class Turn:
    """One episode as it proceeds. The cookies are those of each server's newest answer."""

    client: ServerClient
    request: SingleAgentTurnRequest
    resources_server: str
    agent_server: str
    transports: Sequence[str]
    resources_session_id: str = field(default_factory=lambda: f"resources-session-{uuid4().hex}")
    agent_session_id: str = field(default_factory=lambda: f"agent-session-{uuid4().hex}")
    resources_cookies: dict[str, str] = field(default_factory=dict)
    agent_cookies: dict[str, str] = field(default_factory=dict)
    observations: AgentObservationBundle | None = None
    """What the agent saw, once its session is closed."""

    async def open_resources_session(self, cleanup: CleanupContext) -> ResourcesSeedSessionResponse:
        """What the environment offers the agent."""
        # Registered before seeding: the seed may work and its answer be lost.
        cleanup.register_cleanup("the resources session", self._close_resources_session)
        body = ResourcesSeedSessionRequest(
            resources_session_id=self.resources_session_id,
            episode_id=self.request.episode_id,
            task_id=self.request.task.task_id,
            task_data=self.request.task.task_input.task_data,
        )
        with failing_at("seed", f"seeding {self.resources_server} failed"):
            answer = await self._ask_resources("/seed_session", body.model_dump(mode="json"))
            offer = ResourcesSeedSessionResponse.model_validate(answer)
        if not self.resources_cookies:
            raise failed("seed", f"{self.resources_server} set no session cookie", terminal=True)
        _require_id(offer.resources_session_id, self.resources_session_id, self.resources_server, "seed")
        return offer

    async def open_agent_session(self, cleanup: CleanupContext, offer: ResourcesSeedSessionResponse) -> CleanupHandle:
        """Tell the agent how to reach the environment. The handle closes its session ahead of the rest."""
        base_url = self.client._resolve_base_url(self.resources_server) if self.transports else ""
        with failing_at("seed", f"offering the tools of {self.resources_server} failed"):
            accesses = tool_accesses(
                self.resources_server, base_url, self.transports, self.resources_cookies, offer.resources_tools
            )
        handle = cleanup.register_cleanup("the agent session", self._close_agent_session)
        body = AgentSeedSessionRequest(
            agent_session_id=self.agent_session_id,
            episode_id=self.request.episode_id,
            task_id=self.request.task.task_id,
            tool_accesses=accesses,
            sandbox_access=offer.sandbox_access,
        )
        with failing_at("agent", f"opening a session of {self.agent_server} failed"):
            answer = await self._ask_agent("/v1/agent_sessions", body.model_dump(mode="json"))
            opened = AgentSeedSessionResponse.model_validate(answer)
        _require_id(opened.agent_session_id, self.agent_session_id, self.agent_server, "agent")
        return handle

    async def respond(self) -> dict[str, Any]:
        """The agent's response, as it sent it."""
        params = self.request.task.task_input.responses_create_params
        with failing_at("agent", f"{self.agent_server} failed to respond"):
            response = await self._ask_agent(self._path_of_rollout("/v1/responses"), params)
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise failed("agent", f"{self.agent_server} answered with what is no response", terminal=True)
        response.pop("_ng_trajectory", None)
        return response

    async def close_agent_session(self, handle: CleanupHandle, response: dict[str, Any]) -> None:
        """End the agent's part, before its work is verified: what it still holds may matter to the verifier."""
        with failing_at("cleanup", f"closing the session of {self.agent_server} failed", response):
            await handle.close()

    async def verify(self, response: dict[str, Any]) -> dict[str, Any]:
        """The verdict, as the resources server sent it."""
        task = self.request.task.task_input
        body = {
            **task.task_data,
            "responses_create_params": task.responses_create_params.model_dump(mode="json", exclude_unset=True),
            "response": response,
        }
        with failing_at("verification", f"{self.resources_server} failed to verify", response):
            verdict = await self._ask_resources("/verify", body)
        if not isinstance(verdict, dict):
            raise failed("verification", f"{self.resources_server} gave no verdict", terminal=True, response=response)
        return verdict

    async def _close_agent_session(self) -> None:
        body = AgentCloseSessionRequest(agent_session_id=self.agent_session_id, episode_id=self.request.episode_id)
        answer = await self._ask_agent("/v1/agent_sessions/close", body.model_dump(mode="json"))
        closed = AgentCloseSessionResponse.model_validate(answer)
        self.resources_cookies.update(closed.resources_cookies or {})
        self.observations = closed.agent_observations

    async def _close_resources_session(self) -> None:
        """Tried once more when it fails."""
        try:
            await self._ask_to_close()
        except Exception:
            await self._ask_to_close()

    async def _ask_to_close(self) -> None:
        body = ResourcesCloseSessionRequest(
            resources_session_id=self.resources_session_id, episode_id=self.request.episode_id
        )
        answer = await self._ask_resources("/close_session", body.model_dump(mode="json"))
        ResourcesCloseSessionResponse.model_validate(answer)

    def _path_of_rollout(self, url_path: str) -> str:
        config = getattr(self.client, "global_config_dict", None)
        captured = isinstance(config, Mapping) and token_id_capture_enabled_for_agent(config, self.agent_server)
        return rollout_path_prefix(self.request.episode_id.capture_key, token_capture=captured) + url_path

    async def _ask_resources(self, url_path: str, body: Any) -> Any:
        return await self._ask(self.resources_server, url_path, body, self.resources_cookies)

    async def _ask_agent(self, url_path: str, body: Any) -> Any:
        return await self._ask(self.agent_server, url_path, body, self.agent_cookies)

    async def _ask(self, server: str, url_path: str, body: Any, cookies: dict[str, str]) -> Any:
        """The answer's JSON. `cookies` are sent, and get what the answer sets."""
        answer = await self.client.post(server_name=server, url_path=url_path, json=body, cookies=dict(cookies))
        await raise_for_status(answer)
        cookies.update({name: _value_of(morsel) for name, morsel in answer.cookies.items()})
        return await get_response_json(answer)


def _value_of(cookie: Morsel[str] | str) -> str:
    return cookie.value if isinstance(cookie, Morsel) else cookie


def _require_id(answered: str, asked: str, server: str, stage: FailureStage) -> None:
    if answered != asked:
        raise failed(stage, f"{server} opened session {answered!r}, asked for was {asked!r}", terminal=True)
