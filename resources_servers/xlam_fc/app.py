"""Calls that a question needs: the reward is 1 when a model makes all of them, in any order, and no other."""

from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.long_texts import read_apart, size_of
from nemo_gym.verifiers.tool_calls import ToolCall, calls_of, contains, maximum_matches, recorded
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict


class XlamFcResourcesServerConfig(BaseResourcesServerConfig):
    """`strict_types`: `true` is not 1, and a call whose arguments can't be read is never right."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    strict_types: bool = False


class XlamFcRunRequest(BaseRunRequest):
    expected_answers: list[dict[str, Any]] = []


class XlamFcVerifyRequest(XlamFcRunRequest, BaseVerifyRequest):
    pass


class XlamFcVerifyResponse(XlamFcVerifyRequest, BaseVerifyResponse):
    """`num_correct` expected calls were made; `predicted_calls` are all that were, with `arguments` as decoded."""

    num_expected: int = 0
    num_predicted: int = 0
    num_correct: int = 0
    predicted_calls: list[dict[str, Any]] = []


class XlamFcResourcesServer(SimpleResourcesServer):
    config: XlamFcResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(self, body: XlamFcVerifyRequest) -> XlamFcVerifyResponse:  # type: ignore[override]
        try:
            return await read_apart(size_of(body.response), self._compared, body)
        except RowError as error:
            return verdict(XlamFcVerifyResponse, body, unmeasured(error))

    def _compared(self, body: XlamFcVerifyRequest) -> XlamFcVerifyResponse:
        expected, predicted = [expected_call(answer) for answer in body.expected_answers], calls_of(body.response)
        correct = maximum_matches(expected, predicted, self._matches)
        return verdict(
            XlamFcVerifyResponse,
            body,
            reward=float(correct == len(expected) == len(predicted)),
            num_expected=len(expected),
            num_predicted=len(predicted),
            num_correct=correct,
            predicted_calls=recorded(predicted),
        )

    def _matches(self, expected: ToolCall, actual: ToolCall) -> bool:
        return contains(expected, actual, strict_types=self.config.strict_types)


def expected_call(answer: dict[str, Any]) -> ToolCall:
    """An entry of `expected_answers`, whose arguments may be JSON text. Raises RowError for what is no call."""
    name, arguments = answer.get("name"), answer.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | str | None):
        raise RowError(f"expected_answers holds {str(answer)[:200]}, which is no call with a name and arguments")
    call = ToolCall.of(name, {} if arguments is None else arguments)
    if call.arguments.problem is not None:
        raise RowError(f"expected_answers calls {name!r} with arguments that are no JSON object: {arguments!r:.200}")
    return call


if __name__ == "__main__":
    XlamFcResourcesServer.run_webserver()
