"""The agents that can be found."""

from nemo_gym.config.components import AgentEntry, discover_agents

__all__ = ["AgentEntry", "discover_agents"]
