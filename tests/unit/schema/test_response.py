"""The Responses object: lenient, lossless, readable."""

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym import openai_utils as wire
from tests.unit.schema.examples import FUNCTION_TOOL, TOKENS, output_message, response


def test_unknown_fields_survive_at_every_depth_of_the_output() -> None:
    part = {"type": "output_text", "text": "hi", "annotations": [{"type": "odd", "x": 1}], "part_extra": 1}
    items = [
        {**output_message(), "content": [part], "policy_epoch": [1], "kv_cache_epoch": 2, **TOKENS},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "t", "x": 1}],
            "num_evictions": 0,
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "caller": {"type": "direct"}},
        {"type": "function_call_output", "call_id": "c", "output": "x", "seconds": 1.5},
        {"type": "message", "role": "user", "content": "again", "label": "x"},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "q": 1}, "x": 1},
    ]

    whole = response(*items, _ng_trajectory={"a": 1}, native_finish_reason="eos")
    again = wire.NeMoGymResponse.model_validate(whole.model_dump(exclude_unset=True))

    for found in (whole, again):
        dumped = found.model_dump(exclude_unset=True)
        assert dumped["output"] == items
        assert dumped["_ng_trajectory"] == {"a": 1}
        assert dumped["native_finish_reason"] == "eos"


def test_nested_objects_of_hosted_tools_read_as_attributes() -> None:
    item = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}

    found: Any = response(item).output[0]

    assert found.action.query == "q"


def test_output_text_joins_what_the_model_said() -> None:
    refusal = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "no"}]}
    prompt = {"type": "message", "role": "user", "content": "question"}

    assert response(prompt, output_message("a"), refusal, output_message("b")).output_text == "ab"


def test_models_with_default_types_can_be_read_back_from_the_wire() -> None:
    part = wire.NeMoGymResponseOutputText(text="hi", annotations=[])
    items = [
        wire.NeMoGymResponseOutputMessage(id="m", content=[part]),
        wire.NeMoGymFunctionCallOutput(call_id="c", output="x"),
    ]

    again = wire.NeMoGymResponse.model_validate(response(*items).model_dump(exclude_unset=True))

    assert [type(item) for item in again.output] == [type(item) for item in items]


def test_items_given_as_models_are_kept_not_copied() -> None:
    item = wire.NeMoGymResponseReasoningItem(id="r", summary=[])

    assert response(item).output[0] is item


@pytest.mark.parametrize("missing", ["id", "created_at", "model", "object", "output", "parallel_tool_calls", "tools"])
def test_the_envelope_is_required(missing: str) -> None:
    body = {key: value for key, value in response().model_dump().items() if key != missing}

    with pytest.raises(ValidationError, match=missing):
        wire.NeMoGymResponse.model_validate(body)


def test_echoed_parameters_read_as_attributes() -> None:
    found = response(
        tools=[FUNCTION_TOOL, {"type": "web_search", "x": 1}],
        tool_choice={"type": "function", "name": "look"},
        reasoning={"effort": "low"},
        incomplete_details={"reason": "max_output_tokens"},
    )

    assert found.tools[0].name == "look"  # type: ignore[union-attr]
    assert found.tools[1].x == 1  # type: ignore[union-attr]
    assert found.tool_choice.name == "look"  # type: ignore[union-attr]
    assert found.reasoning is not None and found.reasoning.effort == "low"
    assert found.incomplete_details is not None and found.incomplete_details.reason == "max_output_tokens"


def test_can_be_subclassed_with_own_fields() -> None:
    class Scored(wire.NeMoGymResponse):
        score: float

    found = Scored.model_validate({**response(output_message()).model_dump(), "score": 0.5})

    assert (found.score, found.output_text) == (0.5, "hi")
