"""Names of 0.6 and before that still mean something."""

from __future__ import annotations

from typing import Any

from nemo_gym.config.keys import AGENT_MAP_KEY_NAME, AGENT_NAME_KEY_NAME, FAN_OUT_KEY_NAME
from nemo_gym.config.notices import warn

LEGACY_ENVIRONMENT_ALIASES = {
    "reasoning_gym_claude_code": "claude_code_reasoning_gym",
    "reasoning_gym_hermes": "hermes_reasoning_gym",
    "reasoning_gym_orchestrator": "langgraph_orchestrator_reasoning_gym",
    "reasoning_gym_parallel_thinking": "langgraph_parallel_thinking_reasoning_gym",
    "reasoning_gym_reflection": "langgraph_reflection_reasoning_gym",
    "reasoning_gym_rewoo": "langgraph_rewoo_reasoning_gym",
}
LEGACY_AGENT_ALIASES = {f"{old}_agent": f"{new}_agent" for old, new in LEGACY_ENVIRONMENT_ALIASES.items()}
LEGACY_CONFIG_PATH_ALIASES = {
    **{
        f"environments/{old}/config.yaml": f"environments/{new}/config.yaml"
        for old, new in LEGACY_ENVIRONMENT_ALIASES.items()
    },
    "responses_api_agents/stirrup_agent/configs/stirrup_gdpval.yaml": (
        "responses_api_agents/stirrup_agent/configs/stirrup_agent.yaml"
    ),
    "responses_api_agents/tau2/configs/tau2_agent.yaml": "responses_api_agents/tau2/configs/tau2.yaml",
    "responses_api_agents/verifiers_agent/configs/acereason-math.yaml": (
        "responses_api_agents/verifiers_agent/configs/verifiers_agent.yaml"
    ),
}


def apply_legacy_agent_aliases(config: dict[str, Any]) -> None:
    """Route rows and settings that use an agent's old name to the agent of today; says so when something did."""
    for legacy, canonical in LEGACY_AGENT_ALIASES.items():
        if canonical in config and legacy not in config:
            if _rename_in_routing(config, legacy, canonical):
                warn(f"the agent `{legacy}` is now called `{canonical}`: use that name.")
            agent_routes(config).setdefault(legacy, canonical)


def agent_routes(config: dict[str, Any]) -> dict[str, Any]:
    """The config's `agent_map`, made if there is none."""
    routes = config.get(AGENT_MAP_KEY_NAME)
    if not isinstance(routes, dict):
        routes = config[AGENT_MAP_KEY_NAME] = {}
    return routes


def _rename_in_routing(config: dict[str, Any], legacy: str, canonical: str) -> bool:
    before = [config.get(key) for key in (AGENT_NAME_KEY_NAME, AGENT_MAP_KEY_NAME, FAN_OUT_KEY_NAME)]
    after = [_renamed(value, legacy, canonical) for value in before]
    for key, old, new in zip((AGENT_NAME_KEY_NAME, AGENT_MAP_KEY_NAME, FAN_OUT_KEY_NAME), before, after, strict=True):
        if new != old:
            config[key] = new
    return after != before


def _renamed(value: Any, legacy: str, canonical: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(item, legacy, canonical) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, legacy, canonical) for item in value]
    return canonical if value == legacy else value
