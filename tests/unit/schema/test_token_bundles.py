"""Token bundles come whole or not at all."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from nemo_gym import openai_utils as wire

OUTPUT: TypeAdapter[Any] = TypeAdapter(wire.NeMoGymResponseOutputItem)
TOKENS: dict[str, Any] = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "hi"},
    {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "", "annotations": []}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "reasoning", "id": "r", "summary": []},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
]


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("missing", sorted(TOKENS))
def test_half_a_bundle_is_refused_by_name(item: dict[str, Any], missing: str) -> None:
    half = {key: value for key, value in TOKENS.items() if key != missing}

    with pytest.raises(ValidationError, match=missing):
        OUTPUT.validate_python({**item, **half})


@pytest.mark.parametrize("item", ITEMS)
def test_expert_routing_alone_is_half_a_bundle(item: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="prompt_token_ids"):
        OUTPUT.validate_python({**item, "routed_experts": "x"})


@pytest.mark.parametrize("item", ITEMS)
def test_a_bundle_of_nulls_is_none(item: dict[str, Any]) -> None:
    found = OUTPUT.validate_python({**item, **dict.fromkeys(TOKENS), "routed_experts": None})

    assert wire.TOKEN_METADATA_FIELDS.isdisjoint(found.model_dump(exclude_unset=True))


@pytest.mark.parametrize("item", ITEMS[:4])
@pytest.mark.parametrize(
    "wrong", [{"prompt_token_ids": ["a"]}, {"generation_token_ids": 5}, {"generation_log_probs": [None]}]
)
def test_ill_typed_tokens_are_refused(item: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OUTPUT.validate_python({**item, **TOKENS, **wrong})


@pytest.mark.parametrize("routing", ["opaque", [[[1, 2]], [[3]]]])
def test_expert_routing_is_opaque(routing: Any) -> None:
    found = OUTPUT.validate_python({**ITEMS[3], **TOKENS, "routed_experts": routing})

    assert found.routed_experts is routing


def test_expert_routing_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="routed_experts"):
        OUTPUT.validate_python({**ITEMS[3], **TOKENS, "routed_experts": 5})


def test_every_training_variant_is_its_base_with_tokens() -> None:
    for base, variant in wire.RESPONSES_TO_TRAIN.items():
        assert issubclass(variant, base)
        assert issubclass(variant, wire.TokenIDLogProbMixin)
        assert wire.training_variant_of(base) is variant


def test_a_class_without_training_variant_is_named() -> None:
    with pytest.raises(NotImplementedError, match="NeMoGymFunctionCallOutput"):
        wire.training_variant_of(wire.NeMoGymFunctionCallOutput)


def test_a_chat_message_takes_its_training_class_by_its_tokens() -> None:
    message = {"role": "assistant", "content": "hi"}
    choice = {"index": 0, "finish_reason": "stop"}

    plain = wire.NeMoGymChoice.model_validate({**choice, "message": message})
    trained = wire.NeMoGymChoice.model_validate({**choice, "message": {**message, **TOKENS}})

    assert type(plain.message) is wire.NeMoGymChatCompletionMessage
    assert type(trained.message) is wire.NeMoGymChatCompletionMessageForTraining


def test_half_a_bundle_on_a_chat_message_is_refused() -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "prompt_token_ids": [1]}}

    with pytest.raises(ValidationError, match="generation_token_ids"):
        wire.NeMoGymChoice.model_validate(choice)


def test_one_wrong_token_is_one_error() -> None:
    """Only the one class that an item can be is tried; a union that tries all would read long arrays again for each."""
    tokens = {**TOKENS, "prompt_token_ids": [*range(1000), "wrong"]}

    with pytest.raises(ValidationError) as caught:
        OUTPUT.validate_python({**ITEMS[1], **tokens})

    assert [error["loc"] for error in caught.value.errors()] == [
        ("output_message_for_training", "prompt_token_ids", 1000)
    ]
