"""Ours and the vendor's types read each other's dumps."""

from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseInputItem, ResponseOutputItem
from pydantic import TypeAdapter

from nemo_gym import openai_utils as wire
from tests.unit.schema.examples import completion, output_message, request, response, tool_call

THEIR_INPUT: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)
THEIR_OUTPUT: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
OUR_INPUT: TypeAdapter[Any] = TypeAdapter(wire.NeMoGymResponseInputItem)
OUR_OUTPUT: TypeAdapter[Any] = TypeAdapter(wire.NeMoGymResponseOutputItem)

SCREENSHOT = {"type": "computer_screenshot", "image_url": "http://s"}
FILE_CITATION = {"type": "file_citation", "file_id": "f", "filename": "n", "index": 0}
LOGPROB = {"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": [{"token": "b", "bytes": [], "logprob": -1.0}]}
FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {}, "strict": True}

BOTH: list[dict[str, Any]] = [
    {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "x", "annotations": [FILE_CITATION], "logprobs": [LOGPROB]},
            {"type": "refusal", "refusal": "no"},
        ],
        "phase": "final_answer",
    },
    {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
    {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "t"}],
        "content": [{"type": "reasoning_text", "text": "t"}],
        "encrypted_content": "e",
    },
    {"type": "function_call_output", "id": "i", "call_id": "c", "output": "x", "status": "completed"},
    {
        "type": "file_search_call",
        "id": "i",
        "queries": ["q"],
        "status": "completed",
        "results": [{"file_id": "f", "score": 0.5, "attributes": {"a": "b"}}],
    },
    {"type": "web_search_call", "id": "i", "status": "completed", "action": {"type": "search", "query": "q"}},
    {
        "type": "computer_call",
        "id": "i",
        "call_id": "c",
        "pending_safety_checks": [{"id": "p"}],
        "status": "completed",
        "action": {"type": "click", "button": "left", "x": 1, "y": 2},
    },
    {"type": "computer_call_output", "id": "i", "call_id": "c", "output": SCREENSHOT, "status": "completed"},
    {
        "type": "code_interpreter_call",
        "id": "i",
        "code": "1",
        "container_id": "c",
        "outputs": [{"type": "logs", "logs": "1"}],
        "status": "completed",
    },
    {"type": "image_generation_call", "id": "i", "result": "b64", "status": "completed"},
    {
        "type": "local_shell_call",
        "id": "i",
        "call_id": "c",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    {"type": "local_shell_call_output", "id": "i", "output": "x"},
    {"type": "shell_call", "id": "i", "call_id": "c", "status": "completed", "action": {"commands": ["ls"]}},
    {
        "type": "shell_call_output",
        "id": "i",
        "call_id": "c",
        "status": "completed",
        "output": [{"outcome": {"type": "exit", "exit_code": 0}, "stdout": "", "stderr": ""}],
    },
    {
        "type": "apply_patch_call",
        "id": "i",
        "call_id": "c",
        "status": "completed",
        "operation": {"type": "create_file", "path": "p", "diff": "d"},
    },
    {"type": "apply_patch_call_output", "id": "i", "call_id": "c", "status": "completed", "output": "x"},
    {"type": "mcp_call", "id": "i", "name": "f", "arguments": "{}", "server_label": "s", "output": "x"},
    {
        "type": "mcp_list_tools",
        "id": "i",
        "server_label": "s",
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
    {"type": "mcp_approval_request", "id": "i", "name": "f", "arguments": "{}", "server_label": "s"},
    {"type": "mcp_approval_response", "id": "i", "approval_request_id": "a", "approve": True},
    {"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "id": "i", "call_id": "c", "output": "x", "status": "completed"},
    {"type": "tool_search_call", "id": "i", "arguments": {}, "execution": "server", "status": "completed"},
    {"type": "tool_search_output", "id": "i", "execution": "server", "status": "completed", "tools": [FUNCTION]},
    {"type": "additional_tools", "id": "i", "role": "developer", "tools": [FUNCTION]},
    {"type": "compaction", "id": "i", "encrypted_content": "e"},
    {"type": "program", "id": "i", "call_id": "c", "code": "1", "fingerprint": "f"},
    {"type": "program_output", "id": "i", "call_id": "c", "result": "1", "status": "completed"},
]
INPUT_ONLY: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "q"},
    {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [
            {"type": "input_text", "text": "q"},
            {"type": "input_image", "image_url": "http://i", "detail": "auto"},
            {"type": "input_file", "file_id": "f"},
        ],
    },
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "compaction_trigger"},
    {"type": "item_reference", "id": "i"},
]


def _kind(item: dict[str, Any]) -> str:
    return str(item["type"])


@pytest.mark.parametrize("item", BOTH, ids=_kind)
def test_output_items(item: dict[str, Any]) -> None:
    theirs = THEIR_OUTPUT.validate_python(item).model_dump(exclude_unset=True)

    ours = OUR_OUTPUT.validate_python(theirs).model_dump(exclude_unset=True)

    assert ours == theirs == item
    assert THEIR_OUTPUT.validate_python(ours).model_dump(exclude_unset=True) == item


@pytest.mark.parametrize("item", [item for item in BOTH if item["type"] != "reasoning"], ids=_kind)
def test_whole_dumps_of_output_items_with_their_nulls(item: dict[str, Any]) -> None:
    theirs = THEIR_OUTPUT.validate_python(item).model_dump()

    ours = OUR_OUTPUT.validate_python(theirs).model_dump(exclude_none=True)

    assert THEIR_OUTPUT.validate_python(ours).model_dump(exclude_none=True) == item


@pytest.mark.parametrize("item", [*BOTH, *INPUT_ONLY], ids=_kind)
def test_input_items(item: dict[str, Any]) -> None:
    theirs = THEIR_INPUT.validate_python(item).model_dump(exclude_unset=True)

    ours = OUR_INPUT.validate_python(theirs).model_dump(exclude_unset=True)

    assert ours == item
    assert type(THEIR_INPUT.validate_python(ours)) is type(THEIR_INPUT.validate_python(item))


def test_every_output_item_they_know_is_known_here() -> None:
    covered = {item["type"] for item in BOTH}

    schema = TypeAdapter(ResponseOutputItem).json_schema()
    theirs = {
        definition["properties"]["type"]["const"]
        for definition in schema["$defs"].values()
        if "const" in definition.get("properties", {}).get("type", {})
        and definition["properties"]["type"]["const"].endswith(("_call", "_output", "_request", "_response"))
    }

    assert theirs <= covered


def test_a_whole_response() -> None:
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    given = response(
        output_message(),
        tools=[FUNCTION, {"type": "web_search"}],
        tool_choice={"type": "function", "name": "f"},
        reasoning={"effort": "low"},
        text={"format": {"type": "text"}, "verbosity": "low"},
        incomplete_details={"reason": "max_output_tokens"},
        status="incomplete",
        usage=usage,
    )

    theirs = Response.model_validate(given.model_dump(exclude_unset=True))
    ours = wire.NeMoGymResponse.model_validate(theirs.model_dump())

    assert theirs.output_text == ours.output_text == "hi"
    assert ours.model_dump(exclude_none=True) == given.model_dump(exclude_none=True)
    assert Response.model_validate(ours.model_dump()).output_text == "hi"


def test_a_response_of_theirs_as_models() -> None:
    theirs = Response.model_validate(response(output_message()).model_dump(exclude_unset=True))

    ours = response(*theirs.output)

    assert type(ours.output[0]) is wire.NeMoGymResponseOutputMessage
    assert request(input=list(theirs.output)).input[0] == ours.output[0]


def test_a_whole_completion() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 1}, "prompt_tokens_details": {"cached_tokens": 1}}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, **details}
    given = completion({"role": "assistant", "content": None, "tool_calls": [tool_call()]}, usage=usage)

    theirs = ChatCompletion.model_validate(given.model_dump(exclude_unset=True))
    ours = wire.NeMoGymChatCompletion.model_validate(theirs.model_dump())

    assert ours.model_dump(exclude_none=True) == given.model_dump(exclude_none=True)
    assert ChatCompletion.model_validate(ours.model_dump()) == theirs
