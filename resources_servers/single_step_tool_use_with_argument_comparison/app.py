"""The next step of a trajectory: the reward is 1 for the expected tool with like arguments, or for speaking."""

from typing import ClassVar

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.long_texts import read_apart, size_of
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from resources_servers.single_step_tool_use_with_argument_comparison.common.verification_utils import (
    ExpectedAction,
    StepRewardCategory,
    ToolCallComparatorConfig,
    judged,
)


class SingleStepToolUseArgumentComparisonResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    tool_call_comparator_config: ToolCallComparatorConfig


class SingleStepToolUseArgumentComparisonRunRequest(BaseRunRequest):
    expected_action: ExpectedAction


class SingleStepToolUseArgumentComparisonVerifyRequest(
    SingleStepToolUseArgumentComparisonRunRequest, BaseVerifyRequest
):
    pass


class SingleStepToolUseArgumentComparisonVerifyResponse(
    SingleStepToolUseArgumentComparisonVerifyRequest, BaseVerifyResponse
):
    """`category` says why; null for a row that can't be judged."""

    category: StepRewardCategory | None = None


class SingleStepToolUseArgumentComparisonResourcesServer(SimpleResourcesServer):
    config: SingleStepToolUseArgumentComparisonResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(  # type: ignore[override]
        self, body: SingleStepToolUseArgumentComparisonVerifyRequest
    ) -> SingleStepToolUseArgumentComparisonVerifyResponse:
        kind, rules = SingleStepToolUseArgumentComparisonVerifyResponse, self.config.tool_call_comparator_config
        try:
            found = await read_apart(size_of(body.response), judged, body.expected_action, body.response, rules)
        except RowError as error:
            return verdict(kind, body, unmeasured(error))
        return verdict(kind, body, reward=found.reward, category=found.category)


if __name__ == "__main__":
    SingleStepToolUseArgumentComparisonResourcesServer.run_webserver()
