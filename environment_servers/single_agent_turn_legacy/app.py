"""`single_agent_turn` for those who send a row of a data set and expect a row of results."""

from typing import Any

from fastapi import FastAPI

from environment_servers.single_agent_turn.app import (
    SingleAgentTurnEnvironmentServer,
    SingleAgentTurnEnvironmentServerConfig,
)
from environment_servers.single_agent_turn_legacy.rows import episode_of, record_of
from nemo_gym.base_environment_server import Body
from nemo_gym.serve.json_app import json_app
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.single_agent_turn_types import SingleAgentTurnResult


class SingleAgentTurnLegacyEnvironmentServerConfig(SingleAgentTurnEnvironmentServerConfig):
    """The same as for `single_agent_turn`."""


class SingleAgentTurnLegacyEnvironmentServer(SingleAgentTurnEnvironmentServer):
    config: SingleAgentTurnLegacyEnvironmentServerConfig

    def setup_webserver(self) -> FastAPI:
        """The app, whose `/run` takes rows."""
        app = json_app()
        app.post("/run")(self.run_row)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    async def run_row(self, body: dict[str, Any] = Body()) -> dict[str, Any]:
        """Run the episode a row, or an episode request, asks for; what came of it as a row."""
        agent = self.config.agent_server.name
        request = episode_of(body, agent=agent, bound=(self.config.resources_server.name, agent, self.config.name))
        return record_of(await self.run_request(request), agent)

    def _result(self, verdict: dict[str, Any], response: dict[str, Any]) -> SingleAgentTurnResult:
        """A row may say itself that it is unmeasured, and why."""
        return SingleAgentTurnResult.model_validate(verdict)


if __name__ == "__main__":
    SingleAgentTurnLegacyEnvironmentServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SingleAgentTurnLegacyEnvironmentServer.run_webserver()
