"""What MCP clients, servers and the front door agree on."""

from __future__ import annotations

NEMO_GYM_MCP_SESSION_TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
"""Says, sealed, which session an MCP client calls tools for."""
NEMO_GYM_MCP_METADATA_KEY = "mcp"
"""Where the answer of `/seed_session` says how to reach the session's tools."""
RESERVED_MCP_TOOL_NAMES = frozenset({"verify", "seed_session", "close_session", "aggregate_metrics", "mcp"})
MCP_URL_PATH = "/mcp"
_MCP_TOKEN_SALT = "nemo-gym-mcp-session-token"
