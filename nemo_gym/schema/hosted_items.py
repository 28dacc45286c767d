"""Items of tools that run at the provider. Their insides are the provider's business: kept, readable, not checked."""

from typing import Annotated, Any, Literal

from pydantic import Field

from nemo_gym.schema.items import Item
from nemo_gym.schema.wire import LIST, TEXT, TEXT_OR_LIST, OpenModel

HostedToolOutput = Annotated[Annotated[str, TEXT] | Annotated[list[OpenModel], LIST], TEXT_OR_LIST]


class HostedItem(Item):
    """An item with an id. What its class does not declare is kept as it came."""

    id: str | None = None


class NeMoGymResponseMcpCall(HostedItem):
    """A call of a hosted MCP tool."""

    arguments: str
    name: str
    server_label: str | None = None
    type: Literal["mcp_call"] = "mcp_call"
    approval_request_id: str | None = None
    error: Any | None = None
    output: str | None = None
    status: str | None = None


class NeMoGymResponseMcpListTools(HostedItem):
    """A listing of hosted MCP tools; also where input items of unknown shape land, whole."""

    server_label: str | None = None
    tools: list[Any] = Field(default_factory=list)
    type: Literal["mcp_list_tools"] = "mcp_list_tools"
    error: Any | None = None


class NeMoGymResponseMcpApprovalRequest(HostedItem):
    """A hosted MCP call that waits for approval."""

    arguments: str
    name: str
    server_label: str | None = None
    type: Literal["mcp_approval_request"] = "mcp_approval_request"


class NeMoGymMcpApprovalResponse(HostedItem):
    """Somebody's decision about a hosted MCP call."""

    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    reason: str | None = None


class NeMoGymResponseMcpApprovalResponse(NeMoGymMcpApprovalResponse):
    """The decision as the provider lists it."""

    id: str


class NeMoGymResponseFileSearchToolCall(HostedItem):
    """A search in vector stores."""

    id: str
    queries: list[str]
    status: str
    type: Literal["file_search_call"]
    results: list[OpenModel] | None = None


class NeMoGymResponseFunctionWebSearch(HostedItem):
    """A web search, page visit or find-in-page."""

    id: str
    action: OpenModel
    status: str
    type: Literal["web_search_call"]


class NeMoGymResponseComputerToolCall(HostedItem):
    """A step of computer use."""

    id: str
    call_id: str
    pending_safety_checks: list[OpenModel]
    status: str
    type: Literal["computer_call"]
    action: OpenModel | None = None
    actions: list[OpenModel] | None = None


class NeMoGymComputerCallOutput(HostedItem):
    """The screenshot after a step of computer use."""

    call_id: str
    output: OpenModel
    type: Literal["computer_call_output"]
    acknowledged_safety_checks: list[OpenModel] | None = None
    status: str | None = None


class NeMoGymResponseComputerCallOutput(NeMoGymComputerCallOutput):
    """The screenshot as the provider lists it."""

    id: str
    status: str


class NeMoGymResponseCodeInterpreterToolCall(HostedItem):
    """Code run in a container at the provider."""

    id: str
    code: str | None = None
    container_id: str
    outputs: list[OpenModel] | None = None
    status: str
    type: Literal["code_interpreter_call"]


class NeMoGymResponseCustomToolCall(HostedItem):
    """A call of a tool with free-form input."""

    call_id: str
    input: str
    name: str
    type: Literal["custom_tool_call"]
    namespace: str | None = None


class NeMoGymResponseCustomToolCallOutput(HostedItem):
    """What a custom tool answered."""

    call_id: str
    output: HostedToolOutput
    type: Literal["custom_tool_call_output"]


class NeMoGymResponseCustomToolCallOutputItem(NeMoGymResponseCustomToolCallOutput):
    """A custom tool's answer as the provider lists it."""

    id: str
    status: str


class NeMoGymResponseFunctionCallOutput(HostedItem):
    """A function tool's answer as the provider lists it."""

    id: str
    call_id: str
    output: HostedToolOutput
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["function_call_output"]
    created_by: str | None = None


class NeMoGymResponseApplyPatchToolCall(HostedItem):
    """A change of one file."""

    call_id: str
    operation: OpenModel
    status: str
    type: Literal["apply_patch_call"]


class NeMoGymResponseApplyPatchToolCallOutput(HostedItem):
    """How a change of one file went."""

    call_id: str
    status: str
    type: Literal["apply_patch_call_output"]
    output: str | None = None


class NeMoGymResponseFunctionShellToolCall(HostedItem):
    """Commands for a shell."""

    action: OpenModel
    call_id: str
    type: Literal["shell_call"]
    environment: OpenModel | None = None
    status: str | None = None


class NeMoGymResponseFunctionShellToolCallOutput(HostedItem):
    """What a shell printed."""

    call_id: str
    output: list[OpenModel]
    type: Literal["shell_call_output"]
    max_output_length: int | None = None
    status: str | None = None


class NeMoGymLocalShellCall(HostedItem):
    """A command for the caller's own shell."""

    id: str
    action: OpenModel
    call_id: str
    status: str
    type: Literal["local_shell_call"]


class NeMoGymLocalShellCallOutput(HostedItem):
    """What the caller's own shell printed."""

    id: str
    output: str
    type: Literal["local_shell_call_output"]
    status: str | None = None


class NeMoGymResponseLocalShellCallOutput(NeMoGymLocalShellCallOutput):
    """A local shell's answer as the provider lists it."""


class NeMoGymResponseToolSearchCall(HostedItem):
    """A search for tools that were not loaded."""

    arguments: Any
    type: Literal["tool_search_call"]
    call_id: str | None = None
    execution: str | None = None
    status: str | None = None


class NeMoGymResponseToolSearchOutputItem(HostedItem):
    """Tools that a search found."""

    tools: list[OpenModel]
    type: Literal["tool_search_output"]
    call_id: str | None = None
    execution: str | None = None
    status: str | None = None


class NeMoGymAdditionalTools(HostedItem):
    """Tools added in mid-conversation."""

    role: Literal["developer"]
    tools: list[OpenModel]
    type: Literal["additional_tools"]


class NeMoGymResponseAdditionalTools(HostedItem):
    """Added tools as the provider lists them."""

    id: str
    role: str
    tools: list[OpenModel]
    type: Literal["additional_tools"]


class NeMoGymResponseCompactionItem(HostedItem):
    """History that the provider folded into an opaque text."""

    encrypted_content: str
    type: Literal["compaction"]


class NeMoGymCompactionTrigger(HostedItem):
    """A request to fold history."""

    type: Literal["compaction_trigger"]


class NeMoGymImageGenerationCall(HostedItem):
    """An image, or its making."""

    id: str
    result: str | None = None
    status: str
    type: Literal["image_generation_call"]


class NeMoGymItemReference(HostedItem):
    """A pointer to an item the provider holds."""

    id: str
    type: Literal["item_reference"]


class NeMoGymProgram(HostedItem):
    """A program that calls tools."""

    id: str
    call_id: str
    type: Literal["program"]


class NeMoGymProgramOutput(HostedItem):
    """What a program returned."""

    id: str
    call_id: str
    type: Literal["program_output"]
