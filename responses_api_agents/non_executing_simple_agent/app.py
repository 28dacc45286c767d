"""An agent that asks the model once: what it calls is looked at by the verifier, and never executed."""

from typing import Literal

from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig


class NonExecutingSimpleAgentConfig(SimpleAgentConfig):
    execute_tools: Literal[False] = False


class NonExecutingSimpleAgent(SimpleAgent):
    config: NonExecutingSimpleAgentConfig

    def _resources_server_for_run(self) -> str:
        if self.config.resources_server is None:
            raise ValueError(f"{self.config.name} needs a resources_server to run rollouts; name one in its config")
        return self.config.resources_server.name


if __name__ == "__main__":
    NonExecutingSimpleAgent.run_webserver()
