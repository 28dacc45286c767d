"""How an agent is told to reach the tools of a resources server."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from environment_servers.single_agent_turn.failures import failed
from nemo_gym.base_resources_server import MCPServerMetadata
from nemo_gym.tool_access import ToolAccess

_ACCESSES: TypeAdapter[list[ToolAccess]] = TypeAdapter(list[ToolAccess])


def tool_accesses(
    server: str,
    base_url: str,
    transports: Sequence[str],
    cookies: dict[str, str],
    mcp: MCPServerMetadata | None,
) -> list[ToolAccess]:
    """One access per transport. The only one is required; of several the agent takes those it understands.

    Raises HandledEpisodeError when the server doesn't offer its tools over MCP as it should.
    """
    base_url, required = base_url.rstrip("/"), len(transports) == 1
    offers = []
    if "direct_http" in transports:
        offers.append({"kind": "direct_http", "base_url": base_url, "cookies": cookies})
    if "mcp" in transports:
        if mcp is None or mcp.transport != "http":
            offered = "not at all" if mcp is None else f"by {mcp.transport}"
            reason = f"{server} must offer its tools over MCP by http, and does so {offered}"
            raise failed("seed", reason, terminal=True)
        url = f"{base_url}/{mcp.url_path.lstrip('/')}"
        offers.append({"kind": "mcp", "connection": {"url": url, "headers": mcp.headers}})
    return _ACCESSES.validate_python(
        [{**offer, "name": f"{server}.{offer['kind']}", "required": required} for offer in offers]
    )
