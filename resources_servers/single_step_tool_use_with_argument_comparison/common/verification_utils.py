"""Comparing the step a model took with the one that was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.verifiers.response_text import assistant_texts
from nemo_gym.verifiers.tool_calls import (
    ArgumentRules,
    ArgumentsProblem,
    Difference,
    ToolCall,
    calls_of,
    difference,
    maximum_matching,
)
from nemo_gym.verifiers.verdicts import RowError
from resources_servers.single_step_tool_use_with_argument_comparison.task_data import (
    ExpectedAction,
    FunctionCallAction,
    FunctionCallBatchAction,
    MessageAction,
)

__all__ = [
    "ExpectedAction",
    "FunctionCallAction",
    "FunctionCallBatchAction",
    "Judgement",
    "MessageAction",
    "ParallelToolCallRewardMode",
    "StepRewardCategory",
    "ToolCallComparatorConfig",
    "judged",
]


class StepRewardCategory(StrEnum):
    """Why a step got its reward."""

    NO_ACTION_FOUND = "The response neither says anything nor calls a tool"
    NO_EXPECTED_TOOL_CALL = "A tool should have been called, but the response is a message"
    EXPECTED_CHAT_MESSAGE_FOUND = "The response is a message, as expected"
    NO_EXPECTED_CHAT_MESSAGE = "A message was expected, but the response calls a tool"
    UNEXPECTED_TOOL = "Another tool than the expected one was called"
    ARGUMENTS_DECODE_ERROR = "The arguments of the call are no JSON"
    ARGUMENT_VALUE_TYPE_DIFFERENT = "An argument has another type than expected"
    ARGUMENT_OBJECT_KEYS_DIFFERENT = "The arguments, or an object among them, have other keys than expected"
    ARGUMENT_LIST_LENGTH_DIFFERENT = "A list among the arguments has another length than expected"
    ARGUMENT_VALUE_DIFFERENT = "An argument has another value than expected"
    EXPECTED_TOOL_CALL = "The expected tool was called with the expected arguments"
    FUNCTION_CALL_BATCH_LENGTH_DIFFERENT = "Another number of tools than expected was called"
    EXPECTED_TOOL_CALL_BATCH = "All expected tools were called with the expected arguments"


class ParallelToolCallRewardMode(StrEnum):
    """How several calls are paid of which not all are right: not at all, by their share, or by precision and recall."""

    BINARY_STRICT = "binary_strict"
    FRACTIONAL = "fractional"
    F1 = "f1"


class ToolCallComparatorConfig(BaseModel):
    """Texts of two words and more are alike when the words they share, over the words of both, are at least
    `word_count_similarity_threshold` (0.5 is the most there is); floats when they differ by less than
    `floating_point_comparison_threshold`.

    The number of calls counts only with `parallel_tool_call_rewarding`; `allow_subset` and `allow_superset` then
    forgive fewer and more. `strict_types`: `true` is no integer, and an integer will do for a float.
    """

    word_count_similarity_threshold: float
    floating_point_comparison_threshold: float = 1e-6
    parallel_tool_call_rewarding: bool = False
    allow_subset: bool = False
    allow_superset: bool = False
    parallel_tool_call_reward_mode: ParallelToolCallRewardMode = ParallelToolCallRewardMode.BINARY_STRICT
    strict_types: bool = False

    @property
    def rules(self) -> ArgumentRules:
        return ArgumentRules(
            self.word_count_similarity_threshold, self.floating_point_comparison_threshold, self.strict_types
        )


@dataclass(frozen=True)
class Judgement:
    reward: float
    category: StepRewardCategory


def judged(expected: ExpectedAction, response: NeMoGymResponse, config: ToolCallComparatorConfig) -> Judgement:
    """How near the step in a response is to the expected one. Raises RowError for an expected call without arguments.

    A response with calls is these calls, whatever it says besides; else it is a message, unless that is blank.
    """
    wanted = None if isinstance(expected, MessageAction) else _expected_calls(expected)
    made = calls_of(response)
    if not made and not any(assistant_texts(response)):
        return Judgement(0.0, StepRewardCategory.NO_ACTION_FOUND)
    if wanted is None:
        if made:
            return Judgement(0.0, StepRewardCategory.NO_EXPECTED_CHAT_MESSAGE)
        return Judgement(1.0, StepRewardCategory.EXPECTED_CHAT_MESSAGE_FOUND)
    if not made:
        return Judgement(0.0, StepRewardCategory.NO_EXPECTED_TOOL_CALL)
    if isinstance(expected, FunctionCallAction) and len(made) == 1:
        fault = _fault(wanted[0], made[0], config.rules)
        return Judgement(float(fault is None), fault or StepRewardCategory.EXPECTED_TOOL_CALL)
    return _judged_batch(wanted, made, config)


def _expected_calls(expected: FunctionCallAction | FunctionCallBatchAction) -> list[ToolCall]:
    actions = expected.calls if isinstance(expected, FunctionCallBatchAction) else [expected]
    calls = [ToolCall.of(action.name, action.arguments) for action in actions]
    for action, call in zip(actions, calls, strict=True):
        if call.arguments.problem is ArgumentsProblem.NOT_JSON:
            raise RowError(f"expected_action calls {action.name!r} with no JSON: {action.arguments[:200]!r}")
    return calls


def _judged_batch(wanted: Sequence[ToolCall], made: Sequence[ToolCall], config: ToolCallComparatorConfig) -> Judgement:
    fewer, more = len(made) < len(wanted), len(made) > len(wanted)
    counts = config.parallel_tool_call_rewarding
    if counts and ((fewer and not config.allow_subset) or (more and not config.allow_superset)):
        return Judgement(0.0, StepRewardCategory.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT)
    pairs = maximum_matching(wanted, made, lambda one, other: _fault(one, other, config.rules) is None)
    reward = _reward_of(len(pairs), len(wanted), len(made), config)
    if reward == 1.0:
        return Judgement(reward, StepRewardCategory.EXPECTED_TOOL_CALL_BATCH)
    return Judgement(reward, _batch_fault(wanted, made, pairs, config.rules))


def _reward_of(matched: int, wanted: int, made: int, config: ToolCallComparatorConfig) -> float:
    if not config.parallel_tool_call_rewarding:
        return float(matched == wanted)
    required = min(wanted, made) if config.allow_subset else wanted
    if config.parallel_tool_call_reward_mode is ParallelToolCallRewardMode.F1:
        return 2 * matched / (wanted + made)
    if config.parallel_tool_call_reward_mode is ParallelToolCallRewardMode.FRACTIONAL:
        return matched / required
    return float(matched == required)


def _batch_fault(
    wanted: Sequence[ToolCall], made: Sequence[ToolCall], pairs: dict[int, int], rules: ArgumentRules
) -> StepRewardCategory:
    """What is wrong with the call that comes nearest to the first expected one that wasn't made."""
    unmatched = [call for number, call in enumerate(wanted) if number not in pairs]
    taken = set(pairs.values())
    left = [call for number, call in enumerate(made) if number not in taken]
    if not unmatched or not left:
        return StepRewardCategory.FUNCTION_CALL_BATCH_LENGTH_DIFFERENT
    faults = (_fault(unmatched[0], call, rules) for call in left if call.name == unmatched[0].name)
    return next((fault for fault in faults if fault is not None), StepRewardCategory.UNEXPECTED_TOOL)


_FAULTS = {
    Difference.TYPE: StepRewardCategory.ARGUMENT_VALUE_TYPE_DIFFERENT,
    Difference.KEYS: StepRewardCategory.ARGUMENT_OBJECT_KEYS_DIFFERENT,
    Difference.LENGTH: StepRewardCategory.ARGUMENT_LIST_LENGTH_DIFFERENT,
    Difference.VALUE: StepRewardCategory.ARGUMENT_VALUE_DIFFERENT,
}


def _fault(wanted: ToolCall, made: ToolCall, rules: ArgumentRules) -> StepRewardCategory | None:
    if wanted.name != made.name:
        return StepRewardCategory.UNEXPECTED_TOOL
    if made.arguments.problem is ArgumentsProblem.NOT_JSON:
        return StepRewardCategory.ARGUMENTS_DECODE_ERROR
    found = difference(wanted.arguments.decoded, made.arguments.decoded, rules)
    return None if found is None else _FAULTS[found]
