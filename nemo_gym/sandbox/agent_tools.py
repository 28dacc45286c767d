"""What agents in sandboxes need of the servers outside: their addresses, their tools and their verdict.

This module is of the front door, whatever its folder: it works on the classes that components import.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from nemo_gym.base_resources_server import NEMO_GYM_MCP_METADATA_KEY, BaseRunRequest
from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.failure_kinds import AGENT_RUN_ERROR
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.sandbox.errors import SandboxConfigError, SandboxError
from nemo_gym.server_utils import ServerClient, get_response_json, get_server_url, raise_for_status

__all__ = [
    "get_server_url",
    "restricted_network_policy",
    "sandbox_server_url",
    "seed_mcp_servers",
    "verify_agent_response",
]

_POLICY_PROVIDER = "opensandbox"


def sandbox_server_url(name: str, *, require_reachable: bool = False) -> str:
    """The base URL of a server of the run, as an agent calls it.

    Raises SandboxConfigError (a ValueError) when it must be reachable from elsewhere and is bound to this host alone.
    """
    url = get_server_url(name).replace("//0.0.0.0:", "//127.0.0.1:")
    if require_reachable and _is_loopback(urlsplit(url).hostname or ""):
        raise SandboxConfigError(
            f"The server `{name}` at {url} can't be reached from a sandbox: start the run with use_absolute_ip=true."
        )
    return url


def restricted_network_policy(provider_name: str, urls: list[str]) -> dict[str, object]:
    """The provider option `network_policy` that lets a sandbox reach the hosts of `urls` and nothing else.

    Raises SandboxConfigError (a ValueError) for a provider without network policies.
    """
    if provider_name != _POLICY_PROVIDER:
        raise SandboxConfigError(
            f"The sandbox provider `{provider_name}` has no network policies: use `{_POLICY_PROVIDER}`, or let the "
            f"agent inherit the network."
        )
    hosts = dict.fromkeys(urlsplit(url).hostname for url in urls)
    if None in hosts:
        raise SandboxConfigError(f"Not all of {urls} are absolute URLs.")
    return {"defaultAction": "deny", "egress": [{"action": "allow", "target": host} for host in hosts]}


async def seed_mcp_servers(
    client: ServerClient,
    servers: list[ResourcesServerRef],
    body: BaseRunRequest,
    cookies: Mapping[str, str],
    *,
    timeout_s: float,
    require_reachable: bool = False,
) -> dict[str, dict[str, object]]:
    """Open a session at each server, and return by server name where an agent finds its tools over MCP.

    The entries are `{url, headers, enabled, timeout}`, the timeout in milliseconds. Raises SandboxConfigError (a
    ValueError) for a server that doesn't offer its tools over MCP.
    """
    entries: dict[str, dict[str, object]] = {}
    for server in servers:
        answer = await client.post(
            server_name=server.name, url_path="/seed_session", json=body.model_dump(), cookies=dict(cookies)
        )
        await raise_for_status(answer)
        seeded = await get_response_json(answer)
        metadata = seeded.get(NEMO_GYM_MCP_METADATA_KEY) or seeded.get("resources_tools") or {}
        if not metadata.get("headers"):
            raise SandboxConfigError(
                f"The server `{server.name}` did not say how its tools are reached over MCP: set "
                f"`expose_tools_over_mcp: true` in its config."
            )
        base_url = sandbox_server_url(server.name, require_reachable=require_reachable)
        entries[server.name] = {
            "url": f"{base_url}{metadata.get('url_path', '/mcp')}",
            "headers": dict(metadata["headers"]),
            "enabled": True,
            "timeout": int(timeout_s * 1000),
        }
    return entries


async def verify_agent_response(
    client: ServerClient,
    server: ResourcesServerRef,
    body: BaseRunRequest,
    response: NeMoGymResponse,
    cookies: Mapping[str, str],
    *,
    force_zero_reward: bool,
) -> dict[str, Any]:
    """The verdict of a server on what the agent answered.

    With `force_zero_reward`, for an agent that failed, an answer without output is judged, so that the record has the
    fields the verifier gives; the agent's own answer and a failure kind are put in. Raises SandboxError when the
    verifier rewards or masks an empty answer.
    """
    judged = response.model_copy(update={"output": []}) if force_zero_reward else response
    payload = {**body.model_dump(), "response": judged.model_dump()}
    answer = await client.post(server_name=server.name, url_path="/verify", json=payload, cookies=dict(cookies))
    await raise_for_status(answer)
    verdict: dict[str, Any] = await get_response_json(answer)
    if not force_zero_reward:
        return verdict
    if verdict.get("mask_sample") or verdict.get("reward") != 0:
        raise SandboxError(
            f"The server `{server.name}` gave an empty answer the reward {verdict.get('reward')!r}"
            f"{' and masked it' if verdict.get('mask_sample') else ''}: a failed agent can't be scored 0 with it."
        )
    kind = verdict.get("failure_kind") or AGENT_RUN_ERROR
    return {**verdict, "response": response.model_dump(), "failure_kind": kind}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
