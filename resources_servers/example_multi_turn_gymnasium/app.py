"""A conversation whose user turns the row gives: the reward is 1 when the last answer holds the expected text."""

from typing import Any, ClassVar

from nemo_gym.base_resources_server import BaseResourcesServerConfig, NeMoGymResponse
from resources_servers.example_multi_turn_gymnasium.task_data import TaskData
from resources_servers.gymnasium import GymnasiumServer, StepResult, extract_text, task_of


class ExampleMultiTurnEnv(GymnasiumServer):
    config: BaseResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    explicit_close: ClassVar[bool] = True

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        """Begin with the first turn; the prompt says all there is to say."""
        self.session_state[session_id] = 0
        return None, {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> StepResult:
        """Say the next of `follow_ups`; after the last, score the answer. HTTPException 400 for a row without them."""
        task = task_of(TaskData, metadata)
        turn = self.session_state.get(session_id, 0)
        if turn < len(task.follow_ups):
            self.session_state[session_id] = turn + 1
            return task.follow_ups[turn], 0.0, False, False, {}
        expected = task.expected_answer.lower()
        is_right = bool(expected) and expected in extract_text(action).lower()
        return None, float(is_right), True, False, {}


if __name__ == "__main__":
    ExampleMultiTurnEnv.run_webserver()
