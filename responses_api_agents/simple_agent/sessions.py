"""The agent's part in sessions that an environment server opens: which tools it was given, and what it saw."""

from __future__ import annotations

from dataclasses import dataclass, field

from nemo_gym.base_responses_api_agent import AgentCloseSessionResponse, AgentSeedSessionRequest, AgentSessionState
from nemo_gym.rollout_observability import AgentInvocation, AgentObservationBundle, ObservationGap, ToolCallObservation
from nemo_gym.tool_access import DirectHTTPToolAccess, MCPToolAccess, ToolAccess
from responses_api_agents.simple_agent.recording import Recording

SOURCE = "simple_agent"


@dataclass
class SimpleAgentSessionState(AgentSessionState):
    """A session: the one way to tools, the cookies it goes with, and the observations of all activations."""

    tool_access: DirectHTTPToolAccess | None = None
    resources_cookies: dict[str, str] = field(default_factory=dict)
    activations: int = 0
    records: list[AgentInvocation | ToolCallObservation] = field(default_factory=list)
    gaps: list[ObservationGap] = field(default_factory=list)

    def next_invocation_id(self) -> str:
        self.activations += 1
        return "root" if self.activations == 1 else f"activation-{self.activations}"

    def add(self, recording: Recording, invocation: AgentInvocation) -> None:
        """What one activation observed."""
        self.records += [invocation, *recording.tool_observations()]
        self.gaps += recording.gaps

    def closing(self) -> AgentCloseSessionResponse:
        """What whoever opened the session gets for closing it."""
        return AgentCloseSessionResponse(
            agent_session_id=self.request.agent_session_id,
            agent_observations=AgentObservationBundle(source=SOURCE, records=list(self.records), gaps=self.gaps),
            resources_cookies=self.resources_cookies,
        )


def session_state(request: AgentSeedSessionRequest, accesses: list[ToolAccess]) -> SimpleAgentSessionState:
    """A session with these accesses; ValueError when the agent can't do what is asked of it."""
    if request.sandbox_access is not None:
        raise ValueError("simple_agent has no use for a sandbox: don't give it sandbox_access")
    required = [access.name for access in accesses if isinstance(access, MCPToolAccess) and access.required]
    if required:
        raise ValueError(f"simple_agent doesn't speak MCP, so it can't use what is required: {', '.join(required)}")
    direct = [access for access in accesses if isinstance(access, DirectHTTPToolAccess)]
    if len(direct) > 1:
        names = ", ".join(access.name for access in direct)
        raise ValueError(f"simple_agent takes its tools from one place, not from {names}")
    access = direct[0] if direct else None
    cookies = dict(access.cookies) if access is not None else {}
    return SimpleAgentSessionState(request=request, tool_access=access, resources_cookies=cookies)
