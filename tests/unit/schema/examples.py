"""Requests and answers that several tests start from."""

from typing import Any

from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

TOKENS: dict[str, Any] = {
    "prompt_token_ids": [1, 2, 3],
    "generation_token_ids": [4, 5],
    "generation_log_probs": [-0.5, -0.25],
}
FUNCTION_TOOL: dict[str, Any] = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string", "default": None}}},
    "strict": True,
}


def request(**fields: Any) -> NeMoGymResponseCreateParamsNonStreaming:
    """A Responses request."""
    return NeMoGymResponseCreateParamsNonStreaming.model_validate({"input": "hi", **fields})


def tool_call(call_id: str = "c1", name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    """A function call as chat has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(message: Any = None, **fields: Any) -> NeMoGymChatCompletion:
    """A chat completion with one choice."""
    choice_keys = ("finish_reason", "native_finish_reason")
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    choice |= {key: fields.pop(key) for key in choice_keys if key in fields}
    body = {"id": "chat-1", "object": "chat.completion", "created": 7, "model": "backend", "choices": [choice]}
    return NeMoGymChatCompletion.model_validate({**body, **fields})


def response(*output: Any, **fields: Any) -> NeMoGymResponse:
    """A Responses object with these output items."""
    body = {
        "id": "resp_1",
        "created_at": 7,
        "model": "m",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return NeMoGymResponse.model_validate({**body, **fields})


def output_message(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """A message from the model."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **fields}
