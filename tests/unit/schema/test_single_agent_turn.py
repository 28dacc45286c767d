"""The shipped episode protocol, and prompts with pictures."""

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.prompt import PromptConfig
from nemo_gym.single_agent_turn_types import (
    SingleAgentTurnFailure,
    SingleAgentTurnRequest,
    SingleAgentTurnResponse,
    SingleAgentTurnResult,
    SingleAgentTurnTaskInput,
)
from nemo_gym.vision_input import build_image_input
from tests.unit.schema.examples import output_message, response

PARAMS: dict[str, Any] = {"input": "q"}
IDS: dict[str, Any] = {"episode_id": {"rollout_id": "0-0"}, "task_id": {"taskset": "t", "task_id": "q"}}


@pytest.mark.parametrize(
    ("given", "task_data"),
    [
        ({"task_data": {"a": 1}}, {"a": 1}),
        ({"a": 1, "b": None}, {"a": 1, "b": None}),
        ({"a": 1, "task_data": {"b": [2]}}, {"a": 1, "b": [2]}),
        ({"a": 1, "task_data": {"a": 1}}, {"a": 1}),
        ({}, {}),
    ],
)
def test_flat_fields_are_folded_into_task_data(given: dict[str, Any], task_data: dict[str, Any]) -> None:
    found = SingleAgentTurnTaskInput.model_validate({"responses_create_params": PARAMS, **given})

    assert found.task_data == task_data
    assert found.responses_create_params.input == "q"


def test_a_field_given_twice_differently_is_refused() -> None:
    with pytest.raises(ValidationError, match="answer"):
        SingleAgentTurnTaskInput.model_validate(
            {"responses_create_params": PARAMS, "answer": 1, "task_data": {"answer": 2}}
        )


def test_a_request_carries_flat_rows() -> None:
    task = {"task_id": IDS["task_id"], "task_input": {"responses_create_params": PARAMS, "answer": "B"}}

    found = SingleAgentTurnRequest.model_validate({"episode_id": IDS["episode_id"], "task": task})

    assert found.task.task_input.task_data == {"answer": "B"}


def test_a_result_keeps_what_the_verifier_adds() -> None:
    answer = response(output_message()).model_dump()
    result = {"responses_create_params": PARAMS, "response": answer, "reward": 1.0, "accuracy": 0.5}

    found = SingleAgentTurnResponse.model_validate({**IDS, "result": result}).result

    assert isinstance(found, SingleAgentTurnResult)
    assert (found.reward, found.model_dump()["accuracy"], found.ng_agent_observations) == (1.0, 0.5, None)


def test_a_failure_may_hold_the_answer_so_far() -> None:
    failure = {"failure_reason": "x", "terminal": False, "partial_response": response(output_message()).model_dump()}

    found = SingleAgentTurnResponse.model_validate({**IDS, "failure": failure}).failure

    assert isinstance(found, SingleAgentTurnFailure)
    assert found.partial_response is not None and found.partial_response.output_text == "hi"


PROMPT = PromptConfig(user="Look: {question}", system="Be brief.")


def test_a_prompt_without_a_picture_is_text() -> None:
    assert build_image_input(PROMPT, "what?", "") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look: what?"},
    ]


@pytest.mark.parametrize(
    ("image", "url"),
    [("AAAA", "data:image/png;base64,AAAA"), ("data:image/jpeg;base64,BB", "data:image/jpeg;base64,BB")],
)
def test_a_prompt_with_a_picture(image: str, url: str) -> None:
    assert build_image_input(PROMPT, "what?", image)[1]["content"] == [
        {"type": "input_text", "text": "Look: what?"},
        {"type": "input_image", "image_url": url, "detail": "high"},
    ]
