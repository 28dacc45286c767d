"""Which class an item is, from its keys alone: one look, one candidate validated."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Discriminator, Tag

from nemo_gym.schema import hosted_items as hosted
from nemo_gym.schema import items
from nemo_gym.schema.content import output_part_type
from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS, has_token_bundle

_INPUT_ROLES = ("user", "system", "developer")
_EASY_ROLES = (*_INPUT_ROLES, "assistant")
_STATUSES = ("in_progress", "completed", "incomplete")

OWN_TAGS: dict[type[BaseModel], str] = {
    items.NeMoGymEasyInputMessage: "easy_message",
    items.NeMoGymMessage: "input_message",
    items.NeMoGymResponseOutputMessage: "output_message",
    items.NeMoGymResponseFunctionToolCall: "function_call",
    items.NeMoGymFunctionCallOutput: "function_call_output",
    items.NeMoGymResponseReasoningItem: "reasoning",
}
_TRAINING_SUFFIX = "_for_training"
_TRAINABLE = {OWN_TAGS[plain_class] for plain_class in items.TRAINING_ITEMS}
_CLASS_TAGS: dict[type[BaseModel], str] = {
    **OWN_TAGS,
    **{variant: OWN_TAGS[plain] + _TRAINING_SUFFIX for plain, variant in items.TRAINING_ITEMS.items()},
    hosted.NeMoGymResponseFunctionCallOutput: "function_call_output_item",
}


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _first_part_is_output(content: list[Any]) -> bool:
    return bool(content) and output_part_type(content[0]) is not None


def _message_tag(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if item.get("role") in _INPUT_ROLES:
        whole = isinstance(content, list) and item.get("status") in _STATUSES
        return "input_message" if whole else "easy_message"
    if not isinstance(content, list):
        return "easy_message"
    from_model = _first_part_is_output(content) if content else _text(item.get("id"))
    return "output_message" if from_model else "easy_message"


def _untyped_tag(item: Mapping[str, Any]) -> str:
    """Where a dict without `type` belongs; what fits nowhere keeps all its keys in the permissive member."""
    role, content, has_id = item.get("role"), item.get("content"), _text(item.get("id"))
    if role in _EASY_ROLES and isinstance(content, (str, list)):
        tag = _message_tag(item)
        return "mcp_list_tools" if tag == "output_message" and not has_id else tag
    if role is None and has_id and isinstance(content, list) and (not content or _first_part_is_output(content)):
        return "output_message"
    if "arguments" in item and "name" in item:
        return "function_call" if "call_id" in item else "mcp_call"
    if _text(item.get("call_id")) and "output" in item:
        return "function_call_output"
    if has_id and isinstance(item.get("summary"), list):
        return "reasoning"
    return "mcp_list_tools"


@lru_cache(maxsize=256)
def _tag_of_class(cls: type[BaseModel]) -> str | None:
    for base in cls.__mro__:
        if base in _CLASS_TAGS:
            return _CLASS_TAGS[base]
    return None


def _with_training(tag: str, item: Mapping[str, Any]) -> str:
    if TOKEN_METADATA_FIELDS.isdisjoint(item):
        return tag
    return tag + _TRAINING_SUFFIX if tag in _TRAINABLE and has_token_bundle(item) else tag


def _tag(item: Mapping[str, Any], kind: Any) -> str:
    return _with_training(_message_tag(item) if kind == "message" else str(kind), item)


def _instance_tag(item: Any) -> str | None:
    tag = _tag_of_class(type(item)) if isinstance(item, BaseModel) else None
    return tag or getattr(item, "type", None)


def input_item_tag(item: Any) -> str | None:
    """The union member for one input item."""
    if type(item) is not dict and not isinstance(item, Mapping):
        return _instance_tag(item)
    kind = item.get("type")
    return _tag(item, kind) if kind is not None else _with_training(_untyped_tag(item), item)


def output_item_tag(item: Any) -> str | None:
    """The union member for one output item; an untyped dict has none."""
    if type(item) is not dict and not isinstance(item, Mapping):
        return _instance_tag(item)
    kind = item.get("type")
    if kind is None:
        return None
    if kind == "function_call_output":
        listed = _text(item.get("id")) and item.get("status") in _STATUSES
        return "function_call_output_item" if listed else "function_call_output"
    return _tag(item, kind)


NeMoGymResponseInputItem = Annotated[
    Annotated[items.NeMoGymEasyInputMessage, Tag("easy_message")]
    | Annotated[items.NeMoGymMessage, Tag("input_message")]
    | Annotated[items.NeMoGymResponseOutputMessage, Tag("output_message")]
    | Annotated[items.NeMoGymResponseFunctionToolCall, Tag("function_call")]
    | Annotated[items.NeMoGymFunctionCallOutput, Tag("function_call_output")]
    | Annotated[hosted.NeMoGymResponseFunctionCallOutput, Tag("function_call_output_item")]
    | Annotated[items.NeMoGymResponseReasoningItem, Tag("reasoning")]
    | Annotated[items.NeMoGymEasyInputMessageForTraining, Tag("easy_message_for_training")]
    | Annotated[items.NeMoGymMessageForTraining, Tag("input_message_for_training")]
    | Annotated[items.NeMoGymResponseOutputMessageForTraining, Tag("output_message_for_training")]
    | Annotated[items.NeMoGymResponseFunctionToolCallForTraining, Tag("function_call_for_training")]
    | Annotated[items.NeMoGymResponseReasoningItemForTraining, Tag("reasoning_for_training")]
    | Annotated[hosted.NeMoGymResponseMcpCall, Tag("mcp_call")]
    | Annotated[hosted.NeMoGymResponseMcpListTools, Tag("mcp_list_tools")]
    | Annotated[hosted.NeMoGymResponseMcpApprovalRequest, Tag("mcp_approval_request")]
    | Annotated[hosted.NeMoGymMcpApprovalResponse, Tag("mcp_approval_response")]
    | Annotated[hosted.NeMoGymResponseFileSearchToolCall, Tag("file_search_call")]
    | Annotated[hosted.NeMoGymResponseFunctionWebSearch, Tag("web_search_call")]
    | Annotated[hosted.NeMoGymResponseComputerToolCall, Tag("computer_call")]
    | Annotated[hosted.NeMoGymComputerCallOutput, Tag("computer_call_output")]
    | Annotated[hosted.NeMoGymResponseCodeInterpreterToolCall, Tag("code_interpreter_call")]
    | Annotated[hosted.NeMoGymResponseCustomToolCall, Tag("custom_tool_call")]
    | Annotated[hosted.NeMoGymResponseCustomToolCallOutput, Tag("custom_tool_call_output")]
    | Annotated[hosted.NeMoGymResponseApplyPatchToolCall, Tag("apply_patch_call")]
    | Annotated[hosted.NeMoGymResponseApplyPatchToolCallOutput, Tag("apply_patch_call_output")]
    | Annotated[hosted.NeMoGymResponseFunctionShellToolCall, Tag("shell_call")]
    | Annotated[hosted.NeMoGymResponseFunctionShellToolCallOutput, Tag("shell_call_output")]
    | Annotated[hosted.NeMoGymLocalShellCall, Tag("local_shell_call")]
    | Annotated[hosted.NeMoGymLocalShellCallOutput, Tag("local_shell_call_output")]
    | Annotated[hosted.NeMoGymResponseToolSearchCall, Tag("tool_search_call")]
    | Annotated[hosted.NeMoGymResponseToolSearchOutputItem, Tag("tool_search_output")]
    | Annotated[hosted.NeMoGymAdditionalTools, Tag("additional_tools")]
    | Annotated[hosted.NeMoGymResponseCompactionItem, Tag("compaction")]
    | Annotated[hosted.NeMoGymCompactionTrigger, Tag("compaction_trigger")]
    | Annotated[hosted.NeMoGymImageGenerationCall, Tag("image_generation_call")]
    | Annotated[hosted.NeMoGymItemReference, Tag("item_reference")]
    | Annotated[hosted.NeMoGymProgram, Tag("program")]
    | Annotated[hosted.NeMoGymProgramOutput, Tag("program_output")],
    Discriminator(input_item_tag),
]
NeMoGymResponseInput = list[NeMoGymResponseInputItem]

NeMoGymResponseOutputItem = Annotated[
    Annotated[items.NeMoGymResponseOutputMessage, Tag("output_message")]
    | Annotated[items.NeMoGymResponseFunctionToolCall, Tag("function_call")]
    | Annotated[items.NeMoGymResponseReasoningItem, Tag("reasoning")]
    | Annotated[items.NeMoGymEasyInputMessage, Tag("easy_message")]
    | Annotated[items.NeMoGymMessage, Tag("input_message")]
    | Annotated[items.NeMoGymFunctionCallOutput, Tag("function_call_output")]
    | Annotated[hosted.NeMoGymResponseFunctionCallOutput, Tag("function_call_output_item")]
    | Annotated[items.NeMoGymEasyInputMessageForTraining, Tag("easy_message_for_training")]
    | Annotated[items.NeMoGymMessageForTraining, Tag("input_message_for_training")]
    | Annotated[items.NeMoGymResponseOutputMessageForTraining, Tag("output_message_for_training")]
    | Annotated[items.NeMoGymResponseFunctionToolCallForTraining, Tag("function_call_for_training")]
    | Annotated[items.NeMoGymResponseReasoningItemForTraining, Tag("reasoning_for_training")]
    | Annotated[hosted.NeMoGymResponseMcpCall, Tag("mcp_call")]
    | Annotated[hosted.NeMoGymResponseMcpListTools, Tag("mcp_list_tools")]
    | Annotated[hosted.NeMoGymResponseMcpApprovalRequest, Tag("mcp_approval_request")]
    | Annotated[hosted.NeMoGymResponseMcpApprovalResponse, Tag("mcp_approval_response")]
    | Annotated[hosted.NeMoGymResponseFileSearchToolCall, Tag("file_search_call")]
    | Annotated[hosted.NeMoGymResponseFunctionWebSearch, Tag("web_search_call")]
    | Annotated[hosted.NeMoGymResponseComputerToolCall, Tag("computer_call")]
    | Annotated[hosted.NeMoGymResponseComputerCallOutput, Tag("computer_call_output")]
    | Annotated[hosted.NeMoGymResponseCodeInterpreterToolCall, Tag("code_interpreter_call")]
    | Annotated[hosted.NeMoGymResponseCustomToolCall, Tag("custom_tool_call")]
    | Annotated[hosted.NeMoGymResponseCustomToolCallOutputItem, Tag("custom_tool_call_output")]
    | Annotated[hosted.NeMoGymResponseApplyPatchToolCall, Tag("apply_patch_call")]
    | Annotated[hosted.NeMoGymResponseApplyPatchToolCallOutput, Tag("apply_patch_call_output")]
    | Annotated[hosted.NeMoGymResponseFunctionShellToolCall, Tag("shell_call")]
    | Annotated[hosted.NeMoGymResponseFunctionShellToolCallOutput, Tag("shell_call_output")]
    | Annotated[hosted.NeMoGymLocalShellCall, Tag("local_shell_call")]
    | Annotated[hosted.NeMoGymResponseLocalShellCallOutput, Tag("local_shell_call_output")]
    | Annotated[hosted.NeMoGymResponseToolSearchCall, Tag("tool_search_call")]
    | Annotated[hosted.NeMoGymResponseToolSearchOutputItem, Tag("tool_search_output")]
    | Annotated[hosted.NeMoGymResponseAdditionalTools, Tag("additional_tools")]
    | Annotated[hosted.NeMoGymResponseCompactionItem, Tag("compaction")]
    | Annotated[hosted.NeMoGymImageGenerationCall, Tag("image_generation_call")]
    | Annotated[hosted.NeMoGymProgram, Tag("program")]
    | Annotated[hosted.NeMoGymProgramOutput, Tag("program_output")],
    Discriminator(output_item_tag),
]
