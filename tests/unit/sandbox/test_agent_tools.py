"""What agents in sandboxes need of the servers outside."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest

from nemo_gym.base_resources_server import BaseRunRequest
from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.sandbox import agent_tools
from nemo_gym.sandbox.agent_tools import (
    restricted_network_policy,
    sandbox_server_url,
    seed_mcp_servers,
    verify_agent_response,
)
from nemo_gym.sandbox.errors import SandboxError
from nemo_gym.server_utils import ServerClient
from tests.unit.serve.toys import RESPONSE, ROW

TOOLS = ResourcesServerRef(type="resources_servers", name="tools")
MESSAGE = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}


def client_answering(*bodies: Any) -> Any:
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(side_effect=[_answer(body) for body in bodies])
    return client


def _answer(body: Any) -> Any:
    return MagicMock(ok=True, status=200, read=AsyncMock(return_value=orjson.dumps(body)))


def body() -> BaseRunRequest:
    return BaseRunRequest.model_validate(ROW)


def urls(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(agent_tools, "get_server_url", lambda name: url)


def test_a_wildcard_address_is_called_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    urls(monkeypatch, "http://0.0.0.0:8000")
    assert sandbox_server_url("tools") == "http://127.0.0.1:8000"


@pytest.mark.parametrize("url", ["http://0.0.0.0:1", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
def test_a_server_of_this_host_alone_is_not_reachable(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    urls(monkeypatch, url)
    with pytest.raises(ValueError, match="use_absolute_ip=true"):
        sandbox_server_url("tools", require_reachable=True)


def test_a_server_with_an_address_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    urls(monkeypatch, "http://10.0.0.7:1")
    assert sandbox_server_url("tools", require_reachable=True) == "http://10.0.0.7:1"


def test_a_policy_allows_the_hosts_named_and_nothing_else() -> None:
    policy = restricted_network_policy("opensandbox", ["http://a:1/x", "http://b:2", "http://a:3"])
    allowed = [{"action": "allow", "target": host} for host in ("a", "b")]
    assert policy == {"defaultAction": "deny", "egress": allowed}


def test_a_provider_without_policies_is_refused() -> None:
    with pytest.raises(ValueError, match="`docker` has no network policies"):
        restricted_network_policy("docker", [])
    with pytest.raises(ValueError, match="absolute"):
        restricted_network_policy("opensandbox", ["a:1"])


async def test_sessions_are_opened_and_their_tools_described(monkeypatch: pytest.MonkeyPatch) -> None:
    urls(monkeypatch, "http://0.0.0.0:8000")
    client = client_answering({"mcp": {"server_name": "tools", "url_path": "/mcp", "headers": {"X": "t"}}})
    entries = await seed_mcp_servers(client, [TOOLS], body(), {"c": "1"}, timeout_s=1.5)
    entry = {"url": "http://127.0.0.1:8000/mcp", "headers": {"X": "t"}, "enabled": True, "timeout": 1500}
    assert entries == {"tools": entry}
    call = client.post.call_args.kwargs
    assert (call["server_name"], call["url_path"], call["cookies"]) == ("tools", "/seed_session", {"c": "1"})


async def test_a_server_without_mcp_is_named() -> None:
    with pytest.raises(ValueError, match="expose_tools_over_mcp: true"):
        await seed_mcp_servers(client_answering({}), [TOOLS], body(), {}, timeout_s=1)


async def test_the_verdict_is_the_servers() -> None:
    client = client_answering({"reward": 0.5})
    response = NeMoGymResponse.model_validate({**RESPONSE, "output": [MESSAGE]})
    verdict = await verify_agent_response(client, TOOLS, body(), response, {}, force_zero_reward=False)
    assert verdict == {"reward": 0.5}
    assert client.post.call_args.kwargs["json"]["response"]["output"] != []


async def test_a_failed_agent_is_judged_by_an_empty_answer() -> None:
    client = client_answering({"reward": 0.0, "extra": 1})
    response = NeMoGymResponse.model_validate({**RESPONSE, "output": [MESSAGE]})
    verdict = await verify_agent_response(client, TOOLS, body(), response, {}, force_zero_reward=True)
    assert client.post.call_args.kwargs["json"]["response"]["output"] == []
    assert (verdict["extra"], verdict["failure_kind"]) == (1, "agent_run_error")
    assert verdict["response"]["output"][0]["id"] == "m"


@pytest.mark.parametrize("verdict", [{"reward": 1}, {"reward": 0, "mask_sample": True}, {}])
async def test_a_verifier_that_rewards_nothing_is_not_used(verdict: dict[str, Any]) -> None:
    response = NeMoGymResponse.model_validate(RESPONSE)
    with pytest.raises(SandboxError, match="`tools` gave an empty answer"):
        await verify_agent_response(client_answering(verdict), TOOLS, body(), response, {}, force_zero_reward=True)
