"""The agent in a session of an environment server."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing.agents import reply
from nemo_gym.testing.responses import response
from responses_api_agents.finance_agent.tests.test_app import LOOKUP, SUBMIT, TOOLS, Run
from responses_api_agents.simple_agent import app as simple_agent
from responses_api_agents.simple_agent.tests.test_sessions import ACCESS, EPISODE, SEED


def test_cookies_of_the_environment_go_on_in_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, str]] = []

    async def request(method: str, url: str, **options: Any) -> Any:
        sent.append(dict(options["cookies"]))
        return reply({"results": "found"}, sid=f"moved-{len(sent)}")

    monkeypatch.setattr(simple_agent, "http_request", request)
    run = Run(response(LOOKUP), response(SUBMIT))
    client = TestClient(run.app)
    assert client.post("/v1/agent_sessions", json={**SEED, "tool_accesses": [ACCESS]}).status_code == 200
    answer = client.post("/ng-rollout/7-0/v1/responses", json={"input": "?", "tools": TOOLS})
    assert answer.status_code == 200 and "sid" not in answer.cookies
    closed = client.post("/v1/agent_sessions/close", json={"agent_session_id": "s1", "episode_id": EPISODE})
    assert sent == [{"sid": "seeded"}, {"sid": "moved-1"}]
    assert closed.json()["resources_cookies"] == {"sid": "moved-2"}
