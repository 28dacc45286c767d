"""The wire types components import, and the client for OpenAI-compatible backends."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from pydantic import Field

from nemo_gym.schema.backend_answers import (
    RATE_LIMIT_ERROR_CODES,
    RETRY_ERROR_CODES,
    checked_answer,
)
from nemo_gym.schema.backend_client import BackendClient
from nemo_gym.schema.chat_completion import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionMessage,
    NeMoGymChatCompletionMessageCustomToolCall,
    NeMoGymChatCompletionMessageForTraining,
    NeMoGymChatCompletionMessageToolCall,
    NeMoGymChatCompletionMessageToolCallUnion,
    NeMoGymChatCompletionOutputMessage,
    NeMoGymChoice,
    NeMoGymFunction,
)
from nemo_gym.schema.chat_messages import (
    NeMoGymChatCompletionAssistantMessageForTrainingParam,
    NeMoGymChatCompletionAssistantMessageParam,
    NeMoGymChatCompletionContentPartFileParam,
    NeMoGymChatCompletionContentPartImageParam,
    NeMoGymChatCompletionContentPartInputAudioParam,
    NeMoGymChatCompletionContentPartParam,
    NeMoGymChatCompletionContentPartRefusalParam,
    NeMoGymChatCompletionContentPartTextParam,
    NeMoGymChatCompletionContentPartVideoParam,
    NeMoGymChatCompletionCustomToolParam,
    NeMoGymChatCompletionDeveloperMessageParam,
    NeMoGymChatCompletionMessageCustomToolCallParam,
    NeMoGymChatCompletionMessageParam,
    NeMoGymChatCompletionMessageToolCallFunctionParam,
    NeMoGymChatCompletionMessageToolCallParam,
    NeMoGymChatCompletionMessageToolCallsParam,
    NeMoGymChatCompletionMessageToolCallUnionParam,
    NeMoGymChatCompletionSystemMessageParam,
    NeMoGymChatCompletionToolMessageParam,
    NeMoGymChatCompletionToolParam,
    NeMoGymChatCompletionToolUnionParam,
    NeMoGymChatCompletionUserMessageParam,
    NeMoGymFunctionDefinition,
)
from nemo_gym.schema.chat_request import (
    CHAT_REQUEST_PROVIDER_EXTENSION_FIELDS,
    NeMoGymChatCompletionCreateParamsNonStreaming,
)
from nemo_gym.schema.content import (
    NeMoGymContent,
    NeMoGymInputVideoPart,
    NeMoGymResponseInputContentList,
    NeMoGymResponseInputText,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymSummary,
)
from nemo_gym.schema.hosted_items import (
    NeMoGymAdditionalTools,
    NeMoGymCompactionTrigger,
    NeMoGymComputerCallOutput,
    NeMoGymImageGenerationCall,
    NeMoGymItemReference,
    NeMoGymLocalShellCall,
    NeMoGymLocalShellCallOutput,
    NeMoGymMcpApprovalResponse,
    NeMoGymProgram,
    NeMoGymProgramOutput,
    NeMoGymResponseAdditionalTools,
    NeMoGymResponseApplyPatchToolCall,
    NeMoGymResponseApplyPatchToolCallOutput,
    NeMoGymResponseCodeInterpreterToolCall,
    NeMoGymResponseCompactionItem,
    NeMoGymResponseComputerCallOutput,
    NeMoGymResponseComputerToolCall,
    NeMoGymResponseCustomToolCall,
    NeMoGymResponseCustomToolCallOutput,
    NeMoGymResponseCustomToolCallOutputItem,
    NeMoGymResponseFileSearchToolCall,
    NeMoGymResponseFunctionCallOutput,
    NeMoGymResponseFunctionShellToolCall,
    NeMoGymResponseFunctionShellToolCallOutput,
    NeMoGymResponseFunctionWebSearch,
    NeMoGymResponseLocalShellCallOutput,
    NeMoGymResponseMcpApprovalRequest,
    NeMoGymResponseMcpApprovalResponse,
    NeMoGymResponseMcpCall,
    NeMoGymResponseMcpListTools,
    NeMoGymResponseToolSearchCall,
    NeMoGymResponseToolSearchOutputItem,
)
from nemo_gym.schema.item_unions import (
    NeMoGymResponseInput,
    NeMoGymResponseInputItem,
    NeMoGymResponseOutputItem,
)
from nemo_gym.schema.items import (
    NeMoGymEasyInputMessage,
    NeMoGymEasyInputMessageForTraining,
    NeMoGymFunctionCallOutput,
    NeMoGymMessage,
    NeMoGymMessageForTraining,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseReasoningItem,
    NeMoGymResponseReasoningItemForTraining,
)
from nemo_gym.schema.requests import (
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.schema.response import (
    NeMoGymResponse,
)
from nemo_gym.schema.token_fields import (
    REQUIRED_TOKEN_METADATA_FIELDS,
    TOKEN_METADATA_FIELDS,
    TokenIDLogProbMixin,
    TokenIDLogProbTypedDictMixin,
)
from nemo_gym.schema.tools import (
    NeMoGymFunctionToolParam,
)
from nemo_gym.schema.training_variants import (
    RESPONSES_TO_TRAIN,
    training_variant_of,
)
from nemo_gym.schema.usage import (
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
    accumulate_response_usage,
)

if TYPE_CHECKING:
    from nemo_gym.schema.endpoint_errors import PermanentEndpointError
    from nemo_gym.server_utils import (
        MAX_NUM_TRIES,
        ClientResponse,
        ClientResponseError,
        get_response_json,
        raise_for_status,
        request,
    )

# The HTTP side is loaded when it is first used: most importers of this module only need the types.
_SERVER_UTILS = "nemo_gym.server_utils"
_LAZY = {
    "PermanentEndpointError": "nemo_gym.schema.endpoint_errors",
    "is_cut_off": "nemo_gym.schema.endpoint_errors",
    "MAX_NUM_TRIES": _SERVER_UTILS,
    "ClientResponse": _SERVER_UTILS,
    "ClientResponseError": _SERVER_UTILS,
    "get_response_json": _SERVER_UTILS,
    "raise_for_status": _SERVER_UTILS,
    "request": _SERVER_UTILS,
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


class NeMoGymAsyncOpenAI(BackendClient):
    """A client for one OpenAI-compatible backend.

    Keyword arguments of the `create_*` methods are the JSON body; they return the parsed answer. An HTTP error that
    remains after the retries raises aiohttp's ClientResponseError with the body in `response_content`. A backend that
    refuses the key or the budget is not asked again for a while: PermanentEndpointError.
    """

    base_url: str
    api_key: str
    internal: bool = False
    max_connection_retries: int | None = None
    max_http_attempts: int = Field(default=3, ge=1)
    default_headers: dict[str, str] = Field(default_factory=dict)

    def _http(self, name: str) -> Any:
        return getattr(sys.modules[__name__], name)


__all__ = [
    "CHAT_REQUEST_PROVIDER_EXTENSION_FIELDS",
    "MAX_NUM_TRIES",
    "RATE_LIMIT_ERROR_CODES",
    "REQUIRED_TOKEN_METADATA_FIELDS",
    "RESPONSES_TO_TRAIN",
    "RETRY_ERROR_CODES",
    "TOKEN_METADATA_FIELDS",
    "ClientResponse",
    "ClientResponseError",
    "NeMoGymAdditionalTools",
    "NeMoGymAsyncOpenAI",
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionAssistantMessageForTrainingParam",
    "NeMoGymChatCompletionAssistantMessageParam",
    "NeMoGymChatCompletionContentPartFileParam",
    "NeMoGymChatCompletionContentPartImageParam",
    "NeMoGymChatCompletionContentPartInputAudioParam",
    "NeMoGymChatCompletionContentPartParam",
    "NeMoGymChatCompletionContentPartRefusalParam",
    "NeMoGymChatCompletionContentPartTextParam",
    "NeMoGymChatCompletionContentPartVideoParam",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionCustomToolParam",
    "NeMoGymChatCompletionDeveloperMessageParam",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionMessageCustomToolCall",
    "NeMoGymChatCompletionMessageCustomToolCallParam",
    "NeMoGymChatCompletionMessageForTraining",
    "NeMoGymChatCompletionMessageParam",
    "NeMoGymChatCompletionMessageToolCall",
    "NeMoGymChatCompletionMessageToolCallFunctionParam",
    "NeMoGymChatCompletionMessageToolCallParam",
    "NeMoGymChatCompletionMessageToolCallUnion",
    "NeMoGymChatCompletionMessageToolCallUnionParam",
    "NeMoGymChatCompletionMessageToolCallsParam",
    "NeMoGymChatCompletionOutputMessage",
    "NeMoGymChatCompletionSystemMessageParam",
    "NeMoGymChatCompletionToolMessageParam",
    "NeMoGymChatCompletionToolParam",
    "NeMoGymChatCompletionToolUnionParam",
    "NeMoGymChatCompletionUserMessageParam",
    "NeMoGymChoice",
    "NeMoGymCompactionTrigger",
    "NeMoGymComputerCallOutput",
    "NeMoGymContent",
    "NeMoGymEasyInputMessage",
    "NeMoGymEasyInputMessageForTraining",
    "NeMoGymFunction",
    "NeMoGymFunctionCallOutput",
    "NeMoGymFunctionDefinition",
    "NeMoGymFunctionToolParam",
    "NeMoGymImageGenerationCall",
    "NeMoGymInputVideoPart",
    "NeMoGymItemReference",
    "NeMoGymLocalShellCall",
    "NeMoGymLocalShellCallOutput",
    "NeMoGymMcpApprovalResponse",
    "NeMoGymMessage",
    "NeMoGymMessageForTraining",
    "NeMoGymProgram",
    "NeMoGymProgramOutput",
    "NeMoGymResponse",
    "NeMoGymResponseAdditionalTools",
    "NeMoGymResponseApplyPatchToolCall",
    "NeMoGymResponseApplyPatchToolCallOutput",
    "NeMoGymResponseCodeInterpreterToolCall",
    "NeMoGymResponseCompactionItem",
    "NeMoGymResponseComputerCallOutput",
    "NeMoGymResponseComputerToolCall",
    "NeMoGymResponseCreateParamsNonStreaming",
    "NeMoGymResponseCustomToolCall",
    "NeMoGymResponseCustomToolCallOutput",
    "NeMoGymResponseCustomToolCallOutputItem",
    "NeMoGymResponseFileSearchToolCall",
    "NeMoGymResponseFunctionCallOutput",
    "NeMoGymResponseFunctionShellToolCall",
    "NeMoGymResponseFunctionShellToolCallOutput",
    "NeMoGymResponseFunctionToolCall",
    "NeMoGymResponseFunctionToolCallForTraining",
    "NeMoGymResponseFunctionWebSearch",
    "NeMoGymResponseInput",
    "NeMoGymResponseInputContentList",
    "NeMoGymResponseInputItem",
    "NeMoGymResponseInputText",
    "NeMoGymResponseInputTokensDetails",
    "NeMoGymResponseLocalShellCallOutput",
    "NeMoGymResponseMcpApprovalRequest",
    "NeMoGymResponseMcpApprovalResponse",
    "NeMoGymResponseMcpCall",
    "NeMoGymResponseMcpListTools",
    "NeMoGymResponseOutputItem",
    "NeMoGymResponseOutputMessage",
    "NeMoGymResponseOutputMessageForTraining",
    "NeMoGymResponseOutputRefusal",
    "NeMoGymResponseOutputText",
    "NeMoGymResponseOutputTokensDetails",
    "NeMoGymResponseReasoningItem",
    "NeMoGymResponseReasoningItemForTraining",
    "NeMoGymResponseToolSearchCall",
    "NeMoGymResponseToolSearchOutputItem",
    "NeMoGymResponseUsage",
    "NeMoGymSummary",
    "PermanentEndpointError",
    "TokenIDLogProbMixin",
    "TokenIDLogProbTypedDictMixin",
    "accumulate_response_usage",
    "checked_answer",
    "get_response_json",
    "raise_for_status",
    "request",
    "training_variant_of",
]
